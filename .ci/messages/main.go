// Command messages prints the texts in the code that users read: messages and
// hints of errors, help of commands and flags, and descriptions of fields. The
// prose linter checks them.
//
// Each line is the position of a text, a tab, and the text.
package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSuffix(name, "\n")
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "e2e/") || strings.HasPrefix(name, "tools/") || strings.HasPrefix(name, ".ci/") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			for _, e := range texts(f.Name.Name, n) {
				// An empty line separates paragraphs.
				for part := range strings.SplitSeq(e.text, "\n\n") {
					if part = strings.Join(strings.Fields(part), " "); strings.Contains(part, " ") {
						fmt.Fprintf(out, "%s\t%s\n", fset.Position(e.at), part)
					}
				}
			}
			return true
		})
	}
	return out.Flush()
}

type found struct {
	at   token.Pos
	text string
}

var (
	// fields lists the fields of composite literals that contain texts.
	fields = []string{"Hint", "Message", "Short", "Long", "Meaning", "Causes", "Fixes", "Description", "Help"}
	// flags matches the functions of pflag that define a flag.
	flags = regexp.MustCompile(`^(String|Bool|Int|Int64|Float64|Duration|StringSlice|StringArray|Count)?VarP?F?$`)
	// tags lists the struct tags that contain texts.
	tags = []string{"doc", "jsonschema"}
)

// texts returns the texts of a node, without those of the nodes below it.
func texts(pkg string, n ast.Node) (all []found) {
	switch n := n.(type) {
	case *ast.CallExpr:
		owner, name := callee(n.Fun)
		switch {
		case name == "Errorf" && (owner == "brig" || owner == "" && pkg == "brig"), name == "InvalidField", name == "WithHint":
			for _, a := range n.Args {
				all = append(all, literal(a)...)
			}
		case flags.MatchString(name) && len(n.Args) > 2:
			all = literal(n.Args[len(n.Args)-1])
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(fields, key.Name) {
			all = literal(n.Value)
			if list, ok := n.Value.(*ast.CompositeLit); ok {
				for _, e := range list.Elts {
					all = append(all, literal(e)...)
				}
			}
		}
	case *ast.Field:
		if n.Tag == nil {
			return nil
		}
		tag, err := strconv.Unquote(n.Tag.Value)
		if err != nil {
			return nil
		}
		for _, name := range tags {
			if text := reflect.StructTag(tag).Get(name); text != "" {
				all = append(all, found{n.Tag.Pos(), text})
			}
		}
	}
	return all
}

// callee returns the name of a called function, and the name of its package or value.
func callee(e ast.Expr) (owner, name string) {
	switch e := e.(type) {
	case *ast.Ident:
		return "", e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			owner = x.Name
		}
		return owner, e.Sel.Name
	}
	return "", ""
}

// literal returns the text of a string literal, or of a concatenation of literals.
func literal(e ast.Expr) []found {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return nil
		}
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			return nil
		}
		return []found{{e.Pos(), text}}
	case *ast.BinaryExpr:
		left, right := literal(e.X), literal(e.Y)
		if len(left) == 1 && len(right) == 1 {
			return []found{{left[0].at, left[0].text + right[0].text}}
		}
		return append(left, right...)
	}
	return nil
}
