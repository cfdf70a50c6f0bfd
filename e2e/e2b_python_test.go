package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pythonClients lists the published packages of E2B's Python clients.
var pythonClients = []string{"e2b==2.63.0", "e2b-code-interpreter==2.11.5"}

// olderPythonClients lists the last packages of e2b-code-interpreter 1.x, which do not send a
// token when they run code.
var olderPythonClients = []string{"e2b==1.11.1", "e2b-code-interpreter==1.5.2"}

// TestE2BPythonOfOlderSDK runs e2b-code-interpreter 1.x with the server setting that it needs. The
// control is a server without the setting, which rejects the client.
//
//suite:part clients full
func TestE2BPythonOfOlderSDK(t *testing.T) {
	packages := cached(t, "pip", strings.Join(olderPythonClients, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, olderPythonClients...)...)
	})
	script, err := filepath.Abs("e2b/older.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ setting, want string }{{", unsecured: true", "open"}, {"", "closed"}} {
		s := startE2BDomain(t, c.setting)
		cmd := exec.CommandContext(t.Context(), "python3", "-B", script, c.want)
		cmd.Dir = t.TempDir()
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + packages}, s.env...)
		report(t, cmd, 1)
	}
}

// pillowWheel returns a directory with the Pillow wheel for the Python version of the host image.
func pillowWheel(t *testing.T) string {
	t.Helper()
	version := output(t, "/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
	args := []string{"-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", strings.TrimSpace(version), "pillow==11.3.0", "-d"}
	return cached(t, "pip", strings.Join(args, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append(args, dir)...)
	})
}

// TestE2BPython runs E2B's Python SDKs, which are configured with only a key and two addresses.
//
//suite:part clients full
func TestE2BPython(t *testing.T) {
	startE2B(t).pythonChecks(t, 16, "sandbox.py", "PILLOW="+pillowWheel(t))
}
