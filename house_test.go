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

// Bounds on the number of lines of a file. The minimum does not apply to tests.
const (
	minFile = 40
	maxFile = 600
)

// short maps the files that may have fewer lines than minFile to the reason.
var short = map[string]string{
	"cmd/brig/program.go":      "the counterpart of a file with a build tag",
	"cmd/brig/bench_cert.go":   "certificates for one benchmark",
	"internal/race/log.go":     "the counterpart of files with build tags",
	"provider/gvisor/names.go": "brig-shim has it and not the rest of main",
	"rev.go":                   "one concept of all changes",
}

// maxMethods is the maximum number of methods that an interface declares directly,
// and maxObject is the maximum number of methods of a type. Larger interfaces and
// types embed smaller ones.
const (
	maxMethods = 8
	maxObject  = 60
)

// vague lists package and file names that do not describe their content.
var vague = []string{"util", "utils", "common", "helper", "helpers", "types", "base", "pkg", "misc", "shared", "lib"}

func TestRepositoryConventions(t *testing.T) {
	documented, methods := map[string]bool{}, map[string]int{}
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
		tagged := bytes.Contains(src, []byte("//go:build "))
		platform := regexp.MustCompile(`_(amd64|other|none)\.go$`).MatchString(name)
		if base := path.Base(name); lines < minFile && short[name] == "" && !tagged && !platform && base != "doc.go" && base != "main.go" {
			t.Errorf("%s: %d lines, the least is %d: join it with its neighbour, or name the reason in short", name, lines, minFile)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		documented[dir] = documented[dir] || f.Doc != nil
		for _, d := range f.Decls {
			checkDecl(t, name, dir, d)
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[path.Join(dir, receiver(f))]++
			}
		}
	})
	for typ, n := range methods {
		if n > maxObject {
			t.Errorf("%s has %d methods, the limit is %d: split it", typ, n, maxObject)
		}
	}
	for name := range short {
		if src, err := os.ReadFile(name); err != nil || bytes.Count(src, []byte("\n")) >= minFile {
			t.Errorf("%s is in the list of short files, and is none: %v", name, err)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %q has no comment", dir)
		}
	}
}

// checkDecl checks one declaration: exported names have a comment, and no init
// function runs before main.
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
				checkInterface(t, name, s)
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

// checkInterface bounds the methods of an interface, so that consumers depend
// on few methods, and test doubles are small.
func checkInterface(t *testing.T, file string, s *ast.TypeSpec) {
	t.Helper()
	i, ok := s.Type.(*ast.InterfaceType)
	if !ok {
		return
	}
	n := 0
	for _, m := range i.Methods.List {
		n += len(m.Names)
	}
	if n > maxMethods {
		t.Errorf("%s: interface %s declares %d methods, the limit is %d: embed smaller interfaces", file, s.Name.Name, n, maxMethods)
	}
}

// receiverExported reports whether a function is visible outside of its
// package.
func receiverExported(d *ast.FuncDecl) bool {
	return d.Recv == nil || ast.IsExported(receiver(d))
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	if i, ok := e.(*ast.IndexExpr); ok {
		e = i.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// TestOneWordOneMeaning checks that no type is named by a term that has a different
// meaning in other systems.
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

// TestArchitecturePageNamesEveryPackage checks that the architecture page names every package,
// and that all packages that it names exist.
func TestArchitecturePageNamesEveryPackage(t *testing.T) {
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
	for _, m := range regexp.MustCompile("`((?:cmd|internal|provider|store|api|guest|engine|client|image|e2e|bench|servicetest)(?:/[a-z0-9-]+)*)`").FindAllStringSubmatch(string(page), -1) {
		if st, err := os.Stat(m[1]); err != nil || !st.IsDir() {
			t.Errorf("docs/ARCHITECTURE.md names %s, which is not there", m[1])
		}
	}
}
