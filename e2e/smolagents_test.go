package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// smolagents lists the package smolagents and the dependencies of its remote executors.
var smolagents = []string{"smolagents==1.26.0", "e2b==2.63.0", "e2b-code-interpreter==2.11.5", "websocket-client==1.9.2"}

// runSmolagents runs smolagents' executors against a server, and returns the
// outcome of each code snippet.
func runSmolagents(t *testing.T, executor string) [][]any {
	t.Helper()
	needRoot(t)
	folder := t.TempDir()
	config := filepath.Join(folder, "brig.yaml")
	text := "kernels: {timeout: 30s}\n"
	if executor != "e2b" {
		text = "kernels: {timeout: 30s, default: " + executor + "}\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startE2B(t, "--config", config)
	packages := cached(t, "pip", strings.Join(smolagents, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, smolagents...)...)
	})
	scripts, err := filepath.Abs("smolagents")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "python3", filepath.Join(scripts, "wheel.py"), folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-B", filepath.Join(scripts, "suite.py"))
	cmd.Dir = t.TempDir()
	outcomes := filepath.Join(folder, "outcomes.json")
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + packages, "BRIG_URL=" + s.url, "BRIG_KEY=" + s.server.key,
		"EXECUTOR=" + executor, "OUTCOMES=" + outcomes, "WHEEL=" + filepath.Join(folder, "brigtest-1.0-py3-none-any.whl"),
	}, s.env...)
	report(t, cmd, 16)
	if code, body := s.do("GET", "/v1/sandboxes", ""); code != 200 || !strings.Contains(body, `"sandboxes":[]`) {
		t.Errorf("something is left: %d %s", code, body)
	}
	b, err := os.ReadFile(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]any
	if err := json.Unmarshal(b, &out); err != nil || len(out) < 30 {
		t.Fatalf("%d outcomes: %v", len(out), err)
	}
	return out
}

// TestSmolagentsE2B runs smolagents' E2B executor.
//
//suite:part clients full
func TestSmolagentsE2B(t *testing.T) { runSmolagents(t, "e2b") }

// TestSmolagentsKernels runs smolagents' container executors with a kernel gateway, with one
// sandbox per kernel and with one sandbox per code snippet. Both must return the same results in
// the same suite, including tracebacks.
//
//suite:part clients full
func TestSmolagentsKernels(t *testing.T) {
	one, each := runSmolagents(t, "python3"), runSmolagents(t, "python3-ephemeral")
	if len(one) != len(each) {
		t.Fatalf("%d pieces of code in one sandbox, %d in one each", len(one), len(each))
	}
	for i := range one {
		a, b := withoutAddresses(t, one[i]), withoutAddresses(t, each[i])
		if a != b {
			t.Errorf("in one sandbox\n%s\nin one each\n%s", a, b)
		}
	}
}

// withoutAddresses returns an outcome as JSON, with the memory addresses of
// objects removed.
func withoutAddresses(t *testing.T, outcome []any) string {
	t.Helper()
	b, err := json.Marshal(outcome)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(b), " at 0x")
	if found {
		_, after, _ = strings.Cut(after, ">")
	}
	return before + after
}
