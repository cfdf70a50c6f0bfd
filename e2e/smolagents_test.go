package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// smolagents and what its remote executors need, as published.
var smolagents = []string{"smolagents==1.26.0", "e2b==2.63.0", "e2b-code-interpreter==2.11.5", "websocket-client==1.9.2"}

// smol runs smolagents' executors against a server, and returns what every
// piece of code came to.
func smol(t *testing.T, executor string) [][]any {
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
	report(t, cmd, 15)
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

// The executor of smolagents that speaks with E2B.
//
//suite:part clients full
func TestSmolagentsE2B(t *testing.T) { smol(t, "e2b") }

// What its container executors do with a kernel gateway, with a sandbox for
// each kernel, and with one for each piece of code: both pass one suite, and
// say the same, tracebacks included.
//
//suite:part clients full
func TestSmolagentsKernels(t *testing.T) {
	one, each := smol(t, "python3"), smol(t, "python3-ephemeral")
	if len(one) != len(each) {
		t.Fatalf("%d pieces of code in one sandbox, %d in one each", len(one), len(each))
	}
	for i := range one {
		a, b := steady(t, one[i]), steady(t, each[i])
		if a != b {
			t.Errorf("in one sandbox\n%s\nin one each\n%s", a, b)
		}
	}
}

// steady is an outcome without the addresses of objects in this script's own
// memory.
func steady(t *testing.T, outcome []any) string {
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
