package suite_test

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/suite"
)

const root = "../.."

// buildFolders lists the directories with build products and downloads.
var buildFolders = []string{".git", "bin", "ui/dist", "ui/node_modules", "cmd/brig/embedded", ".cache"}

// tracked lists the files of the checkout. It reads the tree directly instead
// of calling git, so that the test cache tracks the dependencies of the tests.
func tracked(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(buildFolders, rel) || d.Name() == "node_modules" || d.Name() == "__pycache__"):
			return filepath.SkipDir
		case !d.IsDir() && rel != ".git": // .git is a file in a worktree
			files = append(files, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 1000 {
		t.Fatalf("the checkout has only %d files", len(files))
	}
	return files
}

// TestEveryEndToEndTestHasAPart checks that every end-to-end test is assigned
// to one part.
func TestEveryEndToEndTestHasAPart(t *testing.T) {
	tests, err := suite.Discover(root)
	if err != nil {
		t.Fatal(err)
	}
	inPart := map[string]int{}
	for _, test := range tests {
		inPart[test.Part]++
	}
	for _, p := range suite.Parts() {
		if n := inPart[p.Name]; n == 0 && !p.Packages {
			t.Errorf("the part %s has no tests", p.Name)
		}
	}
}

// packagePlans returns the plans that run the tests of packages: the part of
// `make test-all`, and `make test`.
func packagePlans(t *testing.T) (*suite.Tree, []suite.Plan) {
	t.Helper()
	tree, err := suite.OpenTree(root)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := suite.PartNamed("packages")
	if err != nil {
		t.Fatal(err)
	}
	full, err := tree.OfPart(packages, nil, "", suite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	small, err := tree.Small(nil, suite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree, []suite.Plan{full, small}
}

// TestEveryTestFileRuns verifies that a job of `make test` and a part of `make test-all` run
// every other test file. If the file has a build tag, one of these jobs must set the tag.
func TestEveryTestFileRuns(t *testing.T) {
	tree, plans := packagePlans(t)
	for _, file := range tracked(t) {
		dir := path.Dir(file)
		if !strings.HasSuffix(file, "_test.go") || dir == "e2e" || strings.Contains("/"+file, "/testdata/") {
			continue
		}
		for _, plan := range plans {
			if !slices.ContainsFunc(plan.Jobs, func(j suite.Job) bool { return runs(t, tree, j, file) }) {
				t.Errorf("no job of %s runs the tests of %s", plan.Name, file)
			}
		}
	}
}

// TestPlainPackagesRun verifies that `make test` and `make test-all` run a package without the
// race detector if its tests skip checks with the detector.
func TestPlainPackagesRun(t *testing.T) {
	tree, plans := packagePlans(t)
	found := 0
	for _, file := range tracked(t) {
		dir := path.Dir(file)
		if !strings.HasSuffix(file, "_test.go") || dir == "e2e" || dir == "internal/suite" {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(src, []byte("testenv.SkipWithRace(")) && !bytes.Contains(src, []byte("testenv.CheckEndlessResponse(")) && !bytes.Contains(src, []byte("testenv.RaceEnabled")) {
			continue
		}
		found++
		for _, plan := range plans {
			if !slices.ContainsFunc(plan.Jobs, func(j suite.Job) bool { return !slices.Contains(j.Argv, "-race") && runs(t, tree, j, file) }) {
				t.Errorf("%s: every job of %s has the race detector; add the package to plain", file, plan.Name)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d files", found)
	}
}

// runs reports whether a job runs the tests in a file.
func runs(t *testing.T, tree *suite.Tree, j suite.Job, file string) bool {
	t.Helper()
	abs := filepath.Join(tree.Root, filepath.FromSlash(file))
	dir, err := filepath.Rel(j.Dir, filepath.Dir(abs))
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.ToSlash(dir)
	names := []string{path.Join(tree.Module, dir), "./" + dir}
	if j.Dir != tree.Root && !strings.HasPrefix(dir, "..") {
		names = append(names, "./...")
	}
	if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(j.Argv, n) }) {
		return false
	}
	ctx := build.Default
	ctx.CgoEnabled = slices.Contains(j.Env, "CGO_ENABLED=1")
	ctx.BuildTags = strings.Split(j.Argv[slices.Index(j.Argv, "-tags")+1], ",")
	fits, err := ctx.MatchFile(filepath.Dir(abs), filepath.Base(abs))
	if err != nil {
		t.Fatal(err)
	}
	// The cgo variant of a file is for developers who build with cgo.
	return fits || strings.HasSuffix(file, "cgo_test.go")
}

// TestEveryFileHasAnArea checks that the table of areas has a row for every file, and a file
// for every row.
func TestEveryFileHasAnArea(t *testing.T) {
	used := map[string]bool{}
	for _, file := range tracked(t) {
		area, ok := suite.AreaOf(file, suite.Areas())
		if !ok {
			t.Errorf("%s has no row in the table of areas (internal/suite/parts.go)", file)
		}
		used[area.Path] = true
	}
	for _, a := range suite.Areas() {
		if !used[a.Path] {
			t.Errorf("the area %q has no files", a.Path)
		}
		for _, p := range a.Parts {
			if _, err := suite.PartNamed(p); err != nil {
				t.Errorf("area %q: %v", a.Path, err)
			}
		}
	}
}

// TestNoTestBuildsPrograms checks that no test builds programs: building takes
// minutes, and the test would not run the released program.
func TestNoTestBuildsPrograms(t *testing.T) {
	for _, file := range tracked(t) {
		if !strings.HasSuffix(file, ".go") || strings.HasPrefix(file, ".ci/") || strings.HasPrefix(file, "internal/suite/") || strings.HasPrefix(file, "tools/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, cmd := range builds(t, file, src) {
			t.Errorf("%s; add the program to the target test-programs of the Makefile, and use testenv.Bin", cmd)
		}
	}
}

func TestBuildsInTestsAreDetected(t *testing.T) {
	for src, want := range map[string]int{
		`exec.Command("go", "build", "./x")`:                             1,
		`exec.CommandContext(t.Context(), "go", "test", "-c")`:           1,
		`exec.Command("make", "build")`:                                  1,
		`exec.Command("sh", "-c", "cd x && go build -o y")`:              1,
		`exec.Command("go", "list", "-m")`:                               0,
		`exec.Command(os.Args[0], "-test.run", "go")`:                    0,
		`exec.Command("go", args...)`:                                    1,
		`output(t, "go", "install", "example.test/x")`:                   1,
		`exec.Command("node", "build.js", "make sense of a go program")`: 0,
	} {
		file := "package p\n\nfunc f() {\n\t" + src + "\n}\n"
		if got := builds(t, "planted_test.go", []byte(file)); len(got) != want {
			t.Errorf("%s: %q, want %d", src, got, want)
		}
	}
}

// builders are the go subcommands that compile.
var builders = []string{"build", "test", "install", "run", "vet"}

// builds lists the calls in a file that start a compiler.
func builds(t *testing.T, name string, src []byte) (out []string) {
	t.Helper()
	if !bytes.Contains(src, []byte(`"go"`)) && !bytes.Contains(src, []byte(`"make"`)) && !bytes.Contains(src, []byte("go build")) {
		return nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, arg := range call.Args {
			word := "?" // the argument is known only at run time
			if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				word, _ = strconv.Unquote(lit.Value)
			}
			words = append(words, word)
		}
		for i, w := range words {
			rest := append(words[i+1:], "")
			compiles := w == "go" && (slices.Contains(builders, rest[0]) || rest[0] == "?") || w == "make" && i == callee(call)
			if compiles || strings.Contains(w, "go build ") || strings.HasPrefix(w, "make ") && i > 0 && words[i-1] == "-c" {
				out = append(out, fset.Position(call.Pos()).String()+": "+strings.Join(words, " "))
				return true
			}
		}
		return true
	})
	return out
}

// callee returns the index of the program's name among the arguments of a call
// that starts a program.
func callee(call *ast.CallExpr) int {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "CommandContext" {
		return 1
	}
	return 0
}
