package brig_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The sizes of files, in lines.
const (
	maxMedian = 150
	maxP90    = 450
	maxFile   = 800
)

// vague are names that say nothing of what is inside.
var vague = []string{"util", "utils", "common", "helper", "helpers", "types", "base", "pkg", "misc", "shared", "lib"}

func TestHouse(t *testing.T) {
	var sizes []int
	documented := map[string]bool{}
	sources(t, func(name, dir string, src []byte) {
		for _, part := range strings.Split(strings.TrimSuffix(name, ".go"), "/") {
			if slices.Contains(vague, part) {
				t.Errorf("%s: %q says nothing of what is inside", name, part)
			}
		}
		lines := bytes.Count(src, []byte("\n"))
		if lines > maxFile {
			t.Errorf("%s: %d lines, the most is %d", name, lines, maxFile)
		}
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		sizes = append(sizes, lines)
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		documented[dir] = documented[dir] || f.Doc != nil
		for _, d := range f.Decls {
			checkDecl(t, name, dir, d)
		}
	})
	slices.Sort(sizes)
	if m := sizes[len(sizes)/2]; m > maxMedian {
		t.Errorf("the median file has %d lines, the most is %d", m, maxMedian)
	}
	if p := sizes[len(sizes)*9/10]; p > maxP90 {
		t.Errorf("a tenth of the files have more than %d lines", p)
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %q has no comment", dir)
		}
	}
}

// checkDecl holds one declaration to the rules: what is exported is
// documented, nothing happens before main, and no variable of a package is
// there to be changed.
func checkDecl(t *testing.T, name, dir string, d ast.Decl) {
	t.Helper()
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name == "init" {
			t.Errorf("%s: init runs before main can decide anything", name)
		}
		if d.Name.IsExported() && d.Doc == nil && receiverExported(d) {
			t.Errorf("%s: %s is exported and not documented", name, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					t.Errorf("%s: %s is exported and not documented", name, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						t.Errorf("%s: %s is exported and not documented", name, n.Name)
					}
				}
			}
		}
	}
}

// receiverExported reports whether a function can be seen from outside.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	e := d.Recv.List[0].Type
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	if i, ok := e.(*ast.IndexExpr); ok {
		e = i.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}

// TestOneWordOneMeaning keeps the words of other systems out of our own
// names.
func TestOneWordOneMeaning(t *testing.T) {
	banned := []string{"Container", "Pod", "Reaper", "Reconciler", "Janitor", "Manager"}
	sources(t, func(name, dir string, src []byte) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(dir, "internal/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok && slices.Contains(banned, ts.Name.Name) {
					t.Errorf("%s: type %s: the word is another system's", path.Base(name), ts.Name.Name)
				}
			}
		}
	})
}

// The architecture page names every package, and none that is not there.
func TestArchitecturePageIsTrue(t *testing.T) {
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]bool{}
	sources(t, func(name, dir string, _ []byte) {
		if !strings.HasSuffix(name, "_test.go") {
			dirs[dir] = true
		}
	})
	for dir := range dirs {
		if dir != "" && !strings.Contains(string(page), "`"+dir+"`") && !strings.HasPrefix(dir, "e2e/") {
			t.Errorf("docs/ARCHITECTURE.md does not name %s", dir)
		}
	}
	for _, m := range regexp.MustCompile("`((?:cmd|internal|provider|store|api|guest|door|engine|client|image|e2e|bench|servicetest)(?:/[a-z0-9-]+)*)`").FindAllStringSubmatch(string(page), -1) {
		if st, err := os.Stat(m[1]); err != nil || !st.IsDir() {
			t.Errorf("docs/ARCHITECTURE.md names %s, which is not there", m[1])
		}
	}
}
