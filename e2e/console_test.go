package e2e

import (
	"archive/tar"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestConsole uses the console in a browser like an administrator. It signs in with a key,
// configures, tests and activates a provider without revealing its secret, runs a program, uses a
// sandbox and the audit log, and signs out.
//
//suite:part console full
func TestConsole(t *testing.T) {
	needRoot(t)
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/team/box:1"
	pushImage(t, ref, v1.Config{}, layer(t, tar.Header{Name: "etc/motd", Mode: 0o644}, "hello\n"))
	consoleChecks(t, startServer(t, dataDir(t)), 19, "flow.mjs", "EXECMAN_URL=http://"+execmanServer(t, "timeout: 20s").at, "IMAGE_REF="+ref)
}

// TestConsolePages uses every page with real data, at desktop and phone sizes and in light and
// dark mode, and checks each page with axe.
//
//suite:part console full
func TestConsolePages(t *testing.T) {
	needRoot(t)
	consoleChecks(t, startServer(t, dataDir(t)), 25, "pages.mjs", "BRIG="+bin(t, "brig"))
}

// TestConsoleEscapesHostileText verifies that the console never executes text from sandboxes, tenants and
// other parties.
//
//suite:part console full
func TestConsoleEscapesHostileText(t *testing.T) {
	needRoot(t)
	consoleChecks(t, startServer(t, dataDir(t)), 9, "hostile.mjs")
}

// TestConsoleKeyboard verifies that the console can be used without a mouse, and
// that it reports missing data and a lost connection to the server.
//
//suite:part console full
func TestConsoleKeyboard(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t))
	consoleChecks(t, s, 10, "keys.mjs", "BRIG_PID="+strconv.Itoa(s.cmd.Process.Pid))
}

// consoleChecks runs a script that uses a server's console in a browser.
func consoleChecks(t *testing.T, s *server, minChecks int, script string, env ...string) {
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
	shots := os.Getenv("BRIG_TEST_SHOTS") // the directory for screenshots, if set
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CHROMIUM=" + browser, "BRIG_URL=" + s.url, "BRIG_KEY=" + s.key, "SHOTS=" + shots,
	}, env...)
	report(t, cmd, minChecks)
}
