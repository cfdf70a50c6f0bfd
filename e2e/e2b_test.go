package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// e2bServer is a server for E2B's clients.
type e2bServer struct {
	*server
	env []string // the complete configuration of a client
}

func startE2B(t *testing.T, args ...string) *e2bServer {
	t.Helper()
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir, args...)
	key, err := os.ReadFile(filepath.Join(dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &e2bServer{s, []string{
		"E2B_API_KEY=" + strings.TrimSpace(string(key)), "E2B_API_URL=" + s.url, "E2B_SANDBOX_URL=" + s.url, "E2B_VOLUME_API_URL=" + s.url,
	}}
}

// cached returns a directory that the command returned by fill has populated, once per host and
// content.
func cached(t *testing.T, kind, content string, fill func(dir string) *exec.Cmd) string {
	t.Helper()
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	sum := sha256.Sum256([]byte(content))
	dir := filepath.Join(root, "brig-e2e", kind+"-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	// If several test processes run concurrently, the first one populates the directory.
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), kind+"-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	if err := os.Chmod(fresh, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := fill(fresh).CombinedOutput(); err != nil {
		t.Fatalf("install what clients need: %v: %s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// npm returns a directory with the scripts from a directory of this package, and the published
// packages in its package.json.
func npm(t *testing.T, scripts string) string {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(scripts, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	installed := cached(t, "npm", string(manifest), func(dir string) *exec.Cmd {
		if err := os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
		cmd.Dir = dir
		return cmd
	})
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(installed, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(scripts)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checks runs one of the scripts in e2b with E2B's JavaScript clients.
func (s *e2bServer) checks(t *testing.T, minChecks int, script string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Dir = npm(t, "e2b")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, append(s.env, env...)...)
	report(t, cmd, minChecks)
}

// pythonChecks runs one of the scripts in e2b with E2B's Python clients.
func (s *e2bServer) pythonChecks(t *testing.T, minChecks int, script string, env ...string) {
	t.Helper()
	packages := cached(t, "pip", strings.Join(pythonClients, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, pythonClients...)...)
	})
	path, err := filepath.Abs(filepath.Join("e2b", script))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-B", path)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + packages}, append(s.env, env...)...)
	report(t, cmd, minChecks)
}

// report runs a script and reports each of its checks as a subtest. The test fails if there are
// fewer checks than minChecks.
func report(t *testing.T, cmd *exec.Cmd, minChecks int) {
	t.Helper()
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	var tests []verdictOf
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "ok "); ok {
			tests = append(tests, verdictOf{name: name})
		} else if rest, ok := strings.CutPrefix(line, "FAIL "); ok {
			name, reason, _ := strings.Cut(rest, ": ")
			tests = append(tests, verdictOf{name, reason + "\n"})
		} else if n := len(tests); n > 0 && tests[n-1].reason != "" {
			tests[n-1].reason += line + "\n"
		} else {
			t.Log(line)
		}
	}
	for _, v := range tests {
		t.Run(v.name, func(t *testing.T) {
			if v.reason != "" {
				t.Error(v.reason)
			}
		})
	}
	if len(tests) < minChecks || err != nil && !t.Failed() {
		t.Errorf("%v, %d checks, want %d: %s", err, len(tests), minChecks, out)
	}
}

// verdictOf is the result of a script's check; an empty reason means success.
type verdictOf struct{ name, reason string }

// TestE2BSandbox runs E2B's SDK, which is configured with only a key and two addresses.
//
//suite:part clients
func TestE2BSandbox(t *testing.T) { startE2B(t).checks(t, 24, "sandbox.mjs") }

// TestE2BSandboxOfOlderSDK runs an older version of E2B's SDK, which uses older routes to create
// sandboxes.
//
//suite:part clients full
func TestE2BSandboxOfOlderSDK(t *testing.T) {
	startE2B(t).checks(t, 24, "sandbox.mjs", "E2B_MODULE=e2b-older")
}

//suite:part clients
func TestE2BCode(t *testing.T) { startE2B(t).checks(t, 11, "code.mjs") }
