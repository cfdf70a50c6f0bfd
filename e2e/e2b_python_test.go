package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The packages of E2B's Python clients, as published.
var pythonClients = []string{"e2b==2.63.0", "e2b-code-interpreter==2.11.5"}

// E2B's Python SDKs, told a key and two addresses.
//
//suite:part clients full
func TestE2BPython(t *testing.T) {
	s := startE2B(t)
	packages := cached(t, "pip", strings.Join(pythonClients, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, pythonClients...)...)
	})
	script, err := filepath.Abs("e2b/sandbox.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-B", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + packages}, s.env...)
	report(t, cmd, 11)
}
