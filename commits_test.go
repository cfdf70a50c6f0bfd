package brig_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommitSubjects checks that the hook accepts exactly the subjects that
// CONTRIBUTING.md describes.
func TestCommitSubjects(t *testing.T) {
	for subject, ok := range map[string]bool{
		"engine: reject egress rules the provider cannot enforce": true,
		"api/rest, client: pass the idle timeout on":              true,
		".ci: run the linters before the demo":                    true,
		`Revert "engine: reject egress rules"`:                    true,
		"engine: rejects egress rules":                            false,
		"engine: rejected egress rules":                           false,
		"engine: rejecting egress rules":                          false,
		"reject egress rules":                                     false,
		"What a provider cannot enforce is refused":               false,
		"engine: Reject egress rules":                             false,
		"engine: reject " + strings.Repeat("x", 58):               false,
		"engine: reject " + strings.Repeat("x", 57):               true,
	} {
		name := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(name, []byte("# a comment\n"+subject+"\n\nbody\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), ".githooks/commit-msg", name).CombinedOutput()
		if (err == nil) != ok {
			t.Errorf("%q: accepted %t, want %t: %s", subject, err == nil, ok, out)
		}
	}
}

// TestCommitHookChecksFormat verifies that the hook rejects a commit of Go files
// that gofmt would change. The staged content counts, not the content in the
// working directory.
func TestCommitHookChecksFormat(t *testing.T) {
	hooks, err := filepath.Abs(".githooks")
	if err != nil {
		t.Fatal(err)
	}
	const good, bad = "package x\n\nvar a = 1\n", "package x\n\nvar  a = 1\n"
	for name, c := range map[string]struct {
		staged, folder string
		ok             bool
	}{
		"formatted":                {good, good, true},
		"unformatted":              {bad, bad, false},
		"formatted after git add":  {bad, good, false},
		"worse in the folder only": {good, bad, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			git := func(args ...string) ([]byte, error) {
				cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir,
					"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
				return cmd.CombinedOutput()
			}
			write := func(text string) {
				if err := os.WriteFile(filepath.Join(dir, "a b.go"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(c.staged)
			for _, args := range [][]string{{"init", "-q"}, {"config", "core.hooksPath", hooks}, {"add", "."}} {
				if out, err := git(args...); err != nil {
					t.Fatalf("git %v: %v: %s", args, err, out)
				}
			}
			write(c.folder)
			out, err := git("commit", "-q", "-m", "x: add a file")
			if (err == nil) != c.ok {
				t.Errorf("committed %t, want %t: %s", err == nil, c.ok, out)
			}
			if err != nil && !strings.Contains(string(out), "a b.go") {
				t.Errorf("the message does not name the file: %s", out)
			}
		})
	}
}
