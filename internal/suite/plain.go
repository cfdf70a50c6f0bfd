package suite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// skippedByDetector are the names in package testenv by which a test skips its measurement
// if it runs with the race detector.
var skippedByDetector = []string{"SkipWithRace", "CheckEndlessResponse", "RaceEnabled"}

// plainTests returns the names of the tests in packages that check less with the race detector
// than without it: those that use a name in skippedByDetector, or call a function that does.
func (t *Tree) plainTests(packages []string) ([]string, error) {
	var names []string
	for _, p := range packages {
		found, err := plainTestsIn(filepath.Join(t.Root, strings.TrimPrefix(p, t.Module)))
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// plainTestsIn returns the tests of plainTests in one directory.
func plainTestsIn(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	uses := map[string]map[string]bool{} // the names that each function uses
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if uses[f.Name.Name] == nil { // methods of the same name count as one
				uses[f.Name.Name] = map[string]bool{}
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					uses[f.Name.Name][id.Name] = true
				}
				return true
			})
		}
	}
	affected := map[string]bool{}
	for _, name := range skippedByDetector {
		affected[name] = true
	}
	for grown := true; grown; {
		grown = false
		for name, used := range uses {
			if affected[name] {
				continue
			}
			for u := range used {
				if affected[u] {
					affected[name], grown = true, true
					break
				}
			}
		}
	}
	var tests []string
	for name := range affected {
		if strings.HasPrefix(name, "Test") && uses[name] != nil {
			tests = append(tests, name)
		}
	}
	return tests, nil
}
