package e2e

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// templates is the configuration for these tests. The start command of the template web listens
// only after a delay, so that it is not ready at the first request.
const templates = `
templates:
  web:
    image: host
    limits: {memory: 256MiB}
    env: {GREETING: hello}
    cwd: /tmp
    start: |
      echo started by $(whoami) in $PWD >&2
      sleep 1; echo $GREETING > index.html; exec python3 -m http.server 8000 --bind 127.0.0.1
    ready: [python3, -c, "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/index.html')"]
    ready_timeout: 1m
  never:
    image: host
    ready: 'printf "not yet, \033[31mnot now"; exit 7'
    ready_timeout: 2s
  broken:
    image: host
    start: echo oh no >&2; exit 9
    ready: test -e /tmp/never
`

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTemplates verifies that a sandbox of a template is returned only when its start command is
// ready: over REST, with the brig command and with E2B clients.
//
//suite:part core
func TestTemplates(t *testing.T) {
	config := writeConfig(t, templates)
	s := startE2B(t, "--config", config)
	ctx := t.Context()
	c := s.client()
	get := func(t *testing.T, name string) string {
		t.Helper()
		return served(t, c, name, "index.html")
	}
	t.Run("REST", func(t *testing.T) {
		box, err := c.Create(ctx, brig.Spec{Name: "one", Template: "web", Env: map[string]string{"GREETING": "good day"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, "one"); got != "good day\n" {
			t.Errorf("it says %q", got)
		}
		if box.Spec.Template != "web" || box.Spec.Limits.Memory != 256*brig.MiB || box.Spec.Dir != "/tmp" {
			t.Errorf("%+v", box.Spec)
		}
		res, err := c.Exec(ctx, "one", brig.Command{Shell: "pwd; ls"}, brig.IO{})
		if err != nil || !strings.HasPrefix(string(res.Stdout.Head), "/tmp\nindex.html\n") {
			t.Errorf("a command that does not say: %q, %v", res.Stdout.Head, err)
		}
		if log := readLog(t, c, "one", 0); !strings.Contains(log, "started by user in /tmp") {
			t.Errorf("its log is %q", log)
		}
	})
	t.Run("command line", func(t *testing.T) {
		out, err := exec.CommandContext(ctx, bin(t, "brig"), "--data-dir", s.dir, "sandbox", "create", "two", "--template", "web").CombinedOutput()
		if err != nil || string(out) != "two\n" {
			t.Fatalf("%v: %s", err, out)
		}
		if got := get(t, "two"); got != "hello\n" {
			t.Errorf("it says %q", got)
		}
		out, err = exec.CommandContext(ctx, bin(t, "brig"), "--data-dir", s.dir, "template", "ls").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("\nweb ")) || !bytes.Contains(out, []byte("\nbase ")) {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("E2B", func(t *testing.T) {
		var box struct{ SandboxID, TemplateID string }
		s.call(t, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "web"}, &box)
		if got := get(t, box.SandboxID); got != "hello\n" || box.TemplateID != "web" {
			t.Errorf("it says %q, and is %+v", got, box)
		}
		node := exec.CommandContext(ctx, "node", "--input-type=module", "-e", `import { Sandbox } from 'e2b'
			const box = await Sandbox.connect(process.env.BOX)
			const [a, b] = [await box.commands.run('pwd'), await box.commands.run('pwd', { user: 'user' })]
			console.log(a.stdout + b.stdout)`)
		node.Dir = npm(t, "e2b")
		node.Env = append(s.env, "PATH="+os.Getenv("PATH"), "BOX="+box.SandboxID)
		// As in E2B, the directory of the template applies to all users.
		if out, err := node.CombinedOutput(); err != nil || string(out) != "/tmp\n/tmp\n\n" {
			t.Errorf("where commands run: %v: %s", err, out)
		}
	})
	t.Run("template that never becomes ready", func(t *testing.T) {
		for name, says := range map[string]string{
			"never":  `not ready within 2s: it exits with 7: not yet,  [31mnot now`,
			"broken": `start command exited with 9: oh no`,
		} {
			_, err := c.Create(ctx, brig.Spec{Name: "box", Template: name})
			if e := brig.AsError(err); e == nil || e.Kind != brig.CreationFailed || !strings.Contains(e.Message, says) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := c.Get(ctx, "box"); brig.KindOf(err) != brig.NotFound {
				t.Errorf("%s is there: %v", name, err)
			}
		}
		page, err := c.List(ctx, brig.ListOptions{})
		if err != nil || len(page.Sandboxes) != 3 {
			t.Errorf("%d sandboxes are there, want 3: %v", len(page.Sandboxes), err)
		}
	})
	t.Run("survives a server restart", func(t *testing.T) {
		s.kill()
		s = &e2bServer{startServer(t, s.dir, "--config", config), nil}
		c = s.client()
		if got := get(t, "one"); got != "good day\n" {
			t.Errorf("it says %q", got)
		}
		list, err := c.Processes("one").List(ctx)
		if err != nil || len(list) != 1 || list[0].Spec.Tag != brig.StartTag || list[0].Result != nil {
			t.Errorf("%+v, %v", list, err)
		}
		for _, name := range []string{"one", "two"} {
			if err := c.Remove(ctx, name); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestTemplateFromPool verifies that a sandbox of a template is claimed from
// the pool like any other sandbox.
//
//suite:part core
func TestTemplateFromPool(t *testing.T) {
	s := startE2B(t, "--config", writeConfig(t, "templates: {now: {image: host, start: sleep 60}}"))
	c := s.client()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		shelves, err := c.Pool(t.Context())
		if err == nil && len(shelves) > 0 && shelves[0].Ready > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing waits: %+v, %v", shelves, err)
		}
	}
	box, err := c.Create(t.Context(), brig.Spec{Template: "now"})
	if err != nil || box.Pool != brig.PoolHit {
		t.Fatalf("%+v, %v", box, err)
	}
	list, err := c.Processes(box.Spec.Name).List(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.Remove(context.WithoutCancel(t.Context()), box.Spec.Name); err != nil {
		t.Error(err)
	}
}
