package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// An administrator's way through the console, in a browser: from the key to a
// provider that is configured, tried and active, whose secret is not told, a program
// that is watched, a sandbox, the audit log, and out again.
//
//suite:part console full
func TestConsole(t *testing.T) {
	needRoot(t)
	consoleChecks(t, startServer(t, dataDir(t)), 18, "flow.mjs", "EXECMAN_URL=http://"+execmanServer(t, "timeout: 20s").at)
}

// The console shows what sandboxes, tenants and strangers wrote as text, and
// nothing of it runs.
//
//suite:part console full
func TestConsoleHostile(t *testing.T) {
	needRoot(t)
	consoleChecks(t, startServer(t, dataDir(t)), 9, "hostile.mjs")
}

// The console is used without a mouse, says what is not there, and that its
// server has gone.
//
//suite:part console full
func TestConsoleKeys(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t))
	consoleChecks(t, s, 10, "keys.mjs", "BRIG_PID="+strconv.Itoa(s.cmd.Process.Pid))
}

// consoleChecks runs a script with a browser, which is told of a server.
func consoleChecks(t *testing.T, s *server, least int, script string, env ...string) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("needs a browser: apt-get install chromium")
	}
	harness, err := os.ReadFile("e2b/harness.mjs")
	if err != nil {
		t.Fatal(err)
	}
	dir := npm(t, "console")
	if err := os.WriteFile(filepath.Join(dir, "harness.mjs"), harness, 0o600); err != nil {
		t.Fatal(err)
	}
	shots := os.Getenv("BRIG_TEST_SHOTS") // where pictures are kept, if somebody wants to look at them
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CHROMIUM=" + browser, "BRIG_URL=" + s.url, "BRIG_KEY=" + s.key, "SHOTS=" + shots,
	}, env...)
	report(t, cmd, least)
}
