package attack

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// self is the name by which tests call this package.
const self = "attack"

// function is a function of a package, by the package's name.
type function struct{ pkg, name string }

// Find returns the tests below root that write into the book, by their folder:
// those that call this package, or call what does. Nobody keeps a list.
func Find(root string) (map[string][]string, error) {
	calls := map[function][]function{}
	tests := map[function][]string{} // where a test is
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() {
			if name != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "tools" || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		return read(root, name, calls, tests)
	})
	if err != nil {
		return nil, fmt.Errorf("find attacks: %w", err)
	}
	out := map[string][]string{}
	for f, dirs := range tests {
		if reaches(calls, f, map[function]bool{}) {
			for _, dir := range dirs {
				out[dir] = append(out[dir], f.name)
			}
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out, nil
}

// read adds the functions of a file.
func read(root, name string, calls map[function][]function, tests map[function][]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir, err := filepath.Rel(root, filepath.Dir(name))
	if err != nil {
		return err
	}
	pkg := strings.TrimSuffix(file.Name.Name, "_test")
	if pkg == self {
		return nil // its own tests write into books of their own
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		me := function{pkg, f.Name.Name}
		if f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && strings.HasSuffix(name, "_test.go") {
			tests[me] = append(tests[me], path.Clean(filepath.ToSlash(dir)))
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					calls[me] = append(calls[me], function{x.Name, n.Sel.Name})
				}
				calls[me] = append(calls[me], function{pkg, n.Sel.Name})
			case *ast.Ident:
				calls[me] = append(calls[me], function{pkg, n.Name})
			}
			return true
		})
	}
	return nil
}

// reaches reports whether a function comes to call this package.
func reaches(calls map[function][]function, f function, seen map[function]bool) bool {
	if f.pkg == self {
		return true
	}
	if seen[f] {
		return false
	}
	seen[f] = true
	return slices.ContainsFunc(calls[f], func(to function) bool { return reaches(calls, to, seen) })
}
