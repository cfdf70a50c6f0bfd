package execman_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestCompatDocumentIsComplete verifies that COMPAT.md covers every word and code of the
// protocol. Each word and code is either in the table of verdicts or in the list of words that
// the API never sends. For each row of the table, package e2e has a program.
func TestCompatDocumentIsComplete(t *testing.T) {
	b, err := os.ReadFile("COMPAT.md")
	if err != nil {
		t.Fatal(err)
	}
	above, verdicts, ok := strings.Cut(string(b), "\n## Verdicts\n")
	if !ok {
		t.Fatal("there is no table of verdicts")
	}
	var never string
	for line := range strings.Lines(above) {
		if strings.Contains(line, "never sent") {
			never += line
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "../../api/v1/execman.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name := spec.Names[0].Name
		switch v := spec.Values[0].(type) {
		case *ast.UnaryExpr: // a code, because codes are negative
			code := "-" + v.X.(*ast.BasicLit).Value
			if count++; !strings.Contains(verdicts, "| "+code+" |") {
				t.Errorf("no verdict has the code %s (%s)", code, name)
			}
		case *ast.BasicLit:
			word, err := strconv.Unquote(v.Value)
			if name == "ExecmanPython" || name == "ExecmanNode" || name == "ExecmanTimeoutStderr" || err != nil {
				return true
			}
			if count++; !strings.Contains(verdicts, "`"+word+"`") && !strings.Contains(never, "`"+word+"`") {
				t.Errorf("no verdict says %q (%s)", word, name)
			}
		}
		return true
	})
	if count < 20 {
		t.Errorf("only %d words and codes were found", count)
	}
}
