// Package find finds the tests that attack Brig. It is apart from the book that
// they keep, so that no test has a Go front end linked into it.
package find

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// book ends the path of the package that they call.
const book = "internal/attack"

// graph says, of each function and variable of packages, what it names. They
// are told apart by their full names: those of a package and of its test
// variant are the same.
type graph struct {
	uses  map[string][]string
	tests map[string]test
}

type test struct{ dir, name string }

// Tests returns the tests of the module at root that write into the book, by
// their folder: those that call its package, or name what does. Nobody keeps a
// list. It goes by types, as a name alone leads to tests of many minutes that
// have nothing to do with attacks.
func Tests(root string) (map[string][]string, error) {
	root, err := filepath.EvalSymlinks(root)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return nil, fmt.Errorf("find attacks: %w", err)
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo |
			packages.NeedImports | packages.NeedExportFile,
		Dir:   root,
		Tests: true,
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("find attacks: %w", err)
	}
	g := graph{map[string][]string{}, map[string]test{}}
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("find attacks in %s: %w", p.ID, p.Errors[0])
		}
		if strings.HasSuffix(strings.TrimSuffix(p.PkgPath, "_test"), book) {
			continue // its own tests write into books of their own
		}
		for _, f := range p.Syntax {
			g.file(p, root, f)
		}
	}
	out := map[string][]string{}
	for at, t := range g.tests {
		if g.reaches(at, map[string]bool{}) {
			out[t.dir] = append(out[t.dir], t.name)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out, nil
}

// file adds a file's functions and its package's variables.
func (g graph) file(p *packages.Package, root string, f *ast.File) {
	name := p.Fset.Position(f.Package).Filename
	dir, err := filepath.Rel(root, filepath.Dir(name))
	if err != nil || strings.HasPrefix(dir, "..") {
		return // made by go test
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			me := known(p.TypesInfo.Defs[d.Name])
			g.names(p, me, d)
			if d.Recv == nil && strings.HasPrefix(d.Name.Name, "Test") && strings.HasSuffix(name, "_test.go") {
				g.tests[me] = test{filepath.ToSlash(dir), d.Name.Name}
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, s := range d.Specs {
				for _, v := range s.(*ast.ValueSpec).Names {
					g.names(p, known(p.TypesInfo.Defs[v]), s)
				}
			}
		}
	}
}

// names adds what is named in a declaration.
func (g graph) names(p *packages.Package, me string, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if at := known(p.TypesInfo.Uses[id]); at != "" {
				g.uses[me] = append(g.uses[me], at)
			}
		}
		return true
	})
}

// known is the full name of a function, a method or a package's variable.
func known(o types.Object) string {
	switch o := o.(type) {
	case *types.Func:
		return o.Origin().FullName()
	case *types.Var:
		if o.Pkg() != nil && o.Parent() == o.Pkg().Scope() {
			return o.Pkg().Path() + "." + o.Name()
		}
	}
	return ""
}

// reaches reports whether what is named comes to call the book's package.
func (g graph) reaches(at string, seen map[string]bool) bool {
	if i := strings.LastIndex(at, "."); i > 0 && strings.HasSuffix(at[:i], book) {
		return true
	}
	if seen[at] {
		return false
	}
	seen[at] = true
	return slices.ContainsFunc(g.uses[at], func(to string) bool { return g.reaches(to, seen) })
}
