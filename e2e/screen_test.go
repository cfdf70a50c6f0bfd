package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// screeningServer starts a server whose configuration enables screening.
func screeningServer(t *testing.T, mode string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "brig.yaml")
	text := "pool: {size: 1}\nscreening:\n  mode: " + mode + "\n  python: {calls: [eval, os.system]}\n  others: false\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startServer(t, t.TempDir(), "--config", file)
}

// runCode runs `brig run` on the server, and returns its output and exit code.
func (s *server) runCode(args ...string) (out string, code int) {
	s.t.Helper()
	cmd := exec.Command(bin(s.t, "brig"), append([]string{"--url", s.url, "--key", s.key, "run"}, args...)...)
	b, err := cmd.CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(b), ended.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	return string(b), 0
}

// hidden calls os.system without containing that name literally.
const hidden = `x = getattr(__import__("o" + "s"), "sys" "tem")
x("echo it ran")
`

// TestScreeningRejectsForbiddenCode verifies that a server with screening rejects forbidden code, reports the lines,
// and runs all other code. It covers one-shot runs and contexts, through the brig command and
// REST. The control is a server without screening, which runs the same code.
//
//suite:part core
func TestScreeningRejectsForbiddenCode(t *testing.T) {
	free := screeningServer(t, "off")
	if out, code := free.runCode("-c", hidden); code != 0 || !strings.Contains(out, "it ran") {
		t.Fatalf("with screening off: %d %s", code, out)
	}
	if out, code := free.runCode("-l", "ts", "-c", "const x: string = eval('1+1')\nconsole.log(x)"); code != 0 || out != "2\n" {
		t.Fatalf("with screening off: %d %s", code, out)
	}
	free.kill()

	s := screeningServer(t, "deny")
	out, code := s.runCode("-c", hidden)
	if code != 125 || strings.Contains(out, "it ran") || !strings.Contains(out, "Line 1: import of os is denied") ||
		!strings.Contains(out, "Line 2: call of os.system is denied") || !strings.Contains(out, "SB007") || !strings.Contains(out, "hint: ") {
		t.Errorf("hidden call: %d %s", code, out)
	}
	if out, code := s.runCode("-l", "ts", "-c", "type X = 1\nconst x: string = eval('1+1')\nconsole.log(x)"); code != 125 || !strings.Contains(out, "Line 2: call of eval is denied") {
		t.Errorf("TypeScript: %d %s", code, out)
	}
	if out, code := s.runCode("-l", "bash", "-c", "echo it ran"); code != 125 || !strings.Contains(out, "bash is not screened") {
		t.Errorf("bash: %d %s", code, out)
	}
	if out, code := s.runCode("-c", "print('import os; eval(1)') # eval(1)"); code != 0 || out != "import os; eval(1)\n" {
		t.Errorf("harmless code: %d %s", code, out)
	}
	if out, code := s.runCode("-c", "print 'python 2'"); code != 1 || !strings.Contains(out, "SyntaxError") {
		t.Errorf("Python 2, which fails by itself: %d %s", code, out)
	}
	status, body := s.do("POST", "/v1/run", `{"language":"python","code":"a = 1\nimport subprocess"}`)
	if status != 403 || !strings.Contains(body, `"SB007"`) || !strings.Contains(body, "Line 2: import of subprocess is denied") || !strings.Contains(body, `"field":"code"`) {
		t.Errorf("REST: %d %s", status, body)
	}

	ctx, c := t.Context(), s.client()
	if _, err := c.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"import os", "!echo it ran", "%%bash\necho it ran"} {
		res, err := c.RunCode(ctx, "one", brig.Code{Source: source}, nil)
		if brig.KindOf(err) != brig.PolicyBlocked {
			t.Errorf("cell %q: %+v, %v", source, res, err)
		}
	}
	if res, err := c.RunCode(ctx, "one", brig.Code{Source: "print(6*7)"}, nil); err != nil || string(res.Stdout.Head) != "42\n" {
		t.Errorf("a harmless cell: %+v, %v", res, err)
	}
	if err := c.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
}
