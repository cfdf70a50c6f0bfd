package suite

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Test is a test of the end-to-end suite. A directive above its function
// determines where it runs:
//
//	//suite:part hostile full alone
//
// The first word is the part. "full" excludes the test from `make test`. "alone" runs the test
// while no other job runs. "waits" marks a test that mostly waits and uses little CPU time, so
// that it takes no slot. "with=name" runs the tests with that name in one process, so that they
// can share a server.
type Test struct {
	Name  string
	File  string // relative to the root, with slashes
	Part  string
	Full  bool
	Alone bool
	Waits bool
	With  string
}

// directive is the prefix of the line that specifies a test's part.
const directive = "//suite:part"

// Discover reads the end-to-end tests below root, ordered by name. It fails if
// a test has no part or an unknown part.
func Discover(root string) ([]Test, error) {
	files, err := filepath.Glob(filepath.Join(root, "e2e", "*_test.go"))
	if err != nil {
		return nil, err
	}
	var tests []Test
	var problems []error
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := discoverFile(path.Join("e2e", filepath.Base(file)), src)
		problems = append(problems, err)
		tests = append(tests, found...)
	}
	slices.SortFunc(tests, func(a, b Test) int { return strings.Compare(a.Name, b.Name) })
	return tests, errors.Join(problems...)
}

func discoverFile(name string, src []byte) (tests []Test, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !isTest(fn) {
			continue
		}
		t := Test{Name: fn.Name.Name, File: name}
		if err := t.parseDirective(fn.Doc); err != nil {
			problems = append(problems, fmt.Errorf("%s: %s: %w", name, t.Name, err))
			continue
		}
		tests = append(tests, t)
	}
	return tests, errors.Join(problems...)
}

// isTest reports whether go test runs the function as a test.
func isTest(fn *ast.FuncDecl) bool {
	if fn.Recv != nil || fn.Name.Name == "TestMain" {
		return false
	}
	for _, prefix := range []string{"Test", "Example", "Fuzz"} {
		rest, ok := strings.CutPrefix(fn.Name.Name, prefix)
		if ok && (rest == "" || strings.ToUpper(rest[:1]) == rest[:1]) {
			return true
		}
	}
	return false
}

// parseDirective parses the directive of a test.
func (t *Test) parseDirective(doc *ast.CommentGroup) error {
	var words []string
	if doc != nil {
		for _, c := range doc.List {
			if rest, ok := strings.CutPrefix(c.Text, directive+" "); ok {
				words = strings.Fields(rest)
			}
		}
	}
	if len(words) == 0 {
		return fmt.Errorf("the test names no part; add a line %q above it (docs/TESTING.md)", directive+" NAME")
	}
	p, err := PartNamed(words[0])
	if err != nil {
		return err
	}
	if p.Packages {
		return fmt.Errorf("the part %s takes no end-to-end tests", p.Name)
	}
	t.Part, t.Full = p.Name, p.Race
	for _, w := range words[1:] {
		with, ok := strings.CutPrefix(w, "with=")
		switch {
		case w == "full":
			t.Full = true
		case w == "alone":
			t.Alone = true
		case w == "waits":
			t.Waits = true
		case ok && with != "":
			t.With = with
		default:
			return fmt.Errorf("%q is not a word of %s; it knows full, alone, waits and with=NAME", w, directive)
		}
	}
	return nil
}
