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
