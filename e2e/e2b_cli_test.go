package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestE2BCommandLine runs E2B's own command line.
//
//suite:part clients full
func TestE2BCommandLine(t *testing.T) {
	s := startE2B(t)
	dir, begin := npm(t, "e2b"), time.Now().Add(-time.Second)
	home := t.TempDir()
	e2b := func(stdin string, args ...string) (out string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/e2b"), args...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NO_COLOR=1"}, s.env...)
		cmd.Stdin = strings.NewReader(stdin)
		cmd.WaitDelay = 5 * time.Second
		b, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(b), cmd.ProcessState.ExitCode()
	}
	must := func(want string, args ...string) string {
		t.Helper()
		out, code := e2b("", args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("e2b %q = %d: %s, want %q", args, code, out, want)
		}
		return out
	}
	must("base", "template", "list")
	must("", "sandbox", "create", "-d", "base")
	var list []struct{ SandboxID string }
	out := must("", "sandbox", "list", "--format", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("the list is %s", out)
	}
	id := list[0].SandboxID
	must(id, "sandbox", "info", id)
	must("hello there", "sandbox", "exec", id, "--", "echo", "hello there")
	if out, code := e2b("", "sandbox", "exec", id, "--", "sh", "-c", "exit 3"); code != 3 {
		t.Errorf("exec of exit 3 = %d: %s", code, out)
	}
	if out, code := e2b("piped in", "sandbox", "exec", id, "--", "cat"); code != 0 || !strings.Contains(out, "piped in") {
		t.Errorf("exec with input = %d: %s", code, out)
	}
	must("hello there", "sandbox", "logs", id)
	var logs struct {
		Logs []struct{ Timestamp time.Time }
	}
	s.call(t, "GET", "/v2/sandboxes/"+id+"/logs", nil, &logs)
	for i, l := range logs.Logs {
		if l.Timestamp.Before(begin) || l.Timestamp.After(time.Now().Add(time.Second)) || i > 0 && !l.Timestamp.After(logs.Logs[i-1].Timestamp) {
			t.Errorf("line %d is of %v", i, l.Timestamp)
		}
	}
	must("CPU", "sandbox", "metrics", id)
	// The connect command requires a terminal, which the program script provides.
	cmd := exec.CommandContext(t.Context(), "script", "-qec", filepath.Join(dir, "node_modules/.bin/e2b")+" sandbox connect "+id, "/dev/null")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm"}, s.env...)
	cmd.Stdin = delayedReader("echo so$((40+2)); exit\n", 3*time.Second)
	cmd.WaitDelay = 5 * time.Second
	if b, err := cmd.CombinedOutput(); !strings.Contains(string(b), "so42") {
		t.Errorf("connect: %v: %s", err, b)
	}
	must("", "sandbox", "pause", id)
	must("paused", "sandbox", "info", id)
	must("", "sandbox", "resume", id)
	must("hello again", "sandbox", "exec", id, "--", "echo", "hello again")
	must(id, "sandbox", "kill", id)
	must("No sandboxes", "sandbox", "list")
	project := t.TempDir()
	for name, content := range map[string]string{
		"e2b.Dockerfile": "FROM e2bdev/base\nRUN echo built > /home/user/built\nCOPY data.txt /srv/data.txt\n", "data.txt": "data\n",
	} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must("cli-web", "template", "create", "cli-web", "--path", project, "--cpu-count", "1", "--memory-mb", "512")
	must("cli-web", "template", "list")
	must("", "sandbox", "create", "-d", "cli-web")
	out = must("", "sandbox", "list", "--format", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("the list is %s", out)
	}
	must("built\ndata\n", "sandbox", "exec", list[0].SandboxID, "--", "cat", "/home/user/built", "/srv/data.txt")
	must("", "sandbox", "kill", list[0].SandboxID)
	must("cli-web", "template", "delete", "cli-web", "-y")
	if out := must("base", "template", "list"); strings.Contains(out, "cli-web") {
		t.Errorf("the removed template is listed: %s", out)
	}
	if out, _ := e2b("", "sandbox", "pause", id); !strings.Contains(out, "found") {
		t.Errorf("pause of a sandbox that was killed: %s", out)
	}
}

// delayedReader returns a reader that produces a text after a delay.
func delayedReader(text string, after time.Duration) *slow { return &slow{text: text, after: after} }

type slow struct {
	text  string
	after time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(s.after)
	s.after = 8 * time.Second // delay the end of the input
	n := copy(p, s.text)
	s.text = s.text[n:]
	if n == 0 {
		return 0, os.ErrClosed
	}
	return n, nil
}
