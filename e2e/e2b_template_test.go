package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestE2BTemplatesPython builds templates with E2B's Python SDK, and creates sandboxes from them.
//
//suite:part clients full
func TestE2BTemplatesPython(t *testing.T) {
	s := startE2B(t)
	packages := cached(t, "pip", strings.Join(pythonClients, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, pythonClients...)...)
	})
	script, err := filepath.Abs("e2b/template.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-B", script, t.TempDir())
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + packages}, s.env...)
	report(t, cmd, 7)
}

// TestE2BTemplates builds templates with the newest and an older version of E2B's JavaScript SDK.
//
//suite:part clients full
func TestE2BTemplates(t *testing.T) {
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) { startE2B(t).checks(t, 4, "template.mjs", "E2B_MODULE="+module) })
	}
}
