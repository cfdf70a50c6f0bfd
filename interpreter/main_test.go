package interpreter_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
	"github.com/rogpeppe/go-internal/txtar"
)

// mainValue matches the comment with the expected value in a program of testdata/main-*.txtar.
var mainValue = regexp.MustCompile(`(?m)^(?:#|//) value: (.*)$`)

// A program's main function runs exactly once, regardless of how the program calls it.
func TestMainRunsOnce(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *driver{
		"python":     func(t *testing.T) *driver { return startPython(t) },
		"javascript": func(t *testing.T) *driver { return startNode(t) },
	} {
		programs, err := txtar.ParseFile(filepath.Join("testdata", "main-"+name+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs.Files {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				d := start(t)
				d.stdin.Close()
				want := ""
				if m := mainValue.FindSubmatch(p.Data); m != nil {
					want = string(m[1])
				}
				end, code, stdout, stderr := d.runProgram(interpreter.Request{Code: string(p.Data)})
				if code != 0 || end.Failure != nil || string(end.Returned) != want {
					t.Errorf("exit %d, returned %s, want %q\n%s", code, end.Returned, want, stderr)
				}
				if n := strings.Count(stdout, "ran"); n != 1 {
					t.Errorf("main ran %d times\n%s%s", n, stdout, stderr)
				}
			})
		}
	}
}
