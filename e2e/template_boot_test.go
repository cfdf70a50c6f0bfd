package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// bootedTemplates configures a template whose sandboxes are copies of a booted sandbox. The
// content of the file "started" differs for each boot, and that of "restored" for each copy.
const bootedTemplates = `
templates:
  once:
    image: host
    boot_once: true
    imports: [colorsys, xml.dom.minidom]
    env: {BRIG_RESTORED: date +%s%N > /tmp/restored}
    start: |
      date +%s%N > /tmp/started; cd /tmp
      exec python3 -m http.server 8000 --bind 127.0.0.1
    ready: [python3, -c, "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/started')"]
  never:
    image: host
    boot_once: true
    imports: [no_such_module]
`

// createCopy creates sandboxes of the template "once" until one of them is a copy.
func createCopy(t *testing.T, c *client.Client, spec brig.Spec) *brig.Sandbox {
	t.Helper()
	for end := time.Now().Add(2 * promptTimeout); ; time.Sleep(100 * time.Millisecond) {
		spec.Template = "once"
		box, err := c.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.Join(box.Notes, "\n"), "a copy of the sandbox that booted") {
			return box
		}
		if err := c.Remove(t.Context(), box.Spec.Name); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("the template does not boot")
		}
	}
}

// TestTemplateBootsOnce verifies that sandboxes of a template that boots once share only the
// boot. The start command runs in each sandbox, with its port, and the first context has the
// imported modules. Names, random numbers, variables, files and secrets are the sandbox's own.
//
//suite:part core
func TestTemplateBootsOnce(t *testing.T) {
	needRoot(t)
	config := writeConfig(t, bootedTemplates)
	s := startServer(t, t.TempDir(), "--config", config)
	c, ctx := s.client(), t.Context()
	if _, err := c.PutSecret(ctx, brig.SecretChange{Name: "token", Value: []byte("s3cr3t-of-the-tenant"), Hosts: []string{"api.test"}}); err != nil {
		t.Fatal(err)
	}
	var boxes []*brig.Sandbox
	for _, name := range []string{"one", "two"} {
		boxes = append(boxes, createCopy(t, c, brig.Spec{
			Name: name, Env: map[string]string{"WHO": name}, Secrets: []brig.SecretUse{{Name: "token"}},
			Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "api.test"}}},
		}))
	}
	each := func(shell string) (out [2]string) {
		t.Helper()
		for i, box := range boxes {
			res, err := c.Exec(ctx, box.Spec.Name, brig.Command{Shell: shell}, brig.IO{})
			if err != nil || res.ExitCode != 0 {
				t.Fatalf("%s in %s: %+v, %v", shell, box.Spec.Name, res, err)
			}
			out[i] = strings.TrimSpace(string(res.Stdout.Head))
		}
		return out
	}
	if out := each("cat /tmp/started"); out[0] != out[1] || out[0] == "" {
		t.Errorf("they booted at %q", out)
	}
	for _, shell := range []string{"cat /tmp/restored", "hostname", "echo $WHO", "echo $TOKEN", "head -c 16 /dev/urandom | od -An -tx1"} {
		if out := each(shell); out[0] == out[1] || out[0] == "" || out[1] == "" || strings.Contains(out[0]+out[1], "s3cr3t-of-the-tenant") {
			t.Errorf("%s: %q", shell, out)
		}
	}
	code := "import sys, os, random, secrets\nprint('colorsys' in sys.modules, 'xml.dom.minidom' in sys.modules, os.environ['WHO'], random.random(), secrets.token_hex())"
	cells := cellsOf(t, ctx, c, boxes, "", code)
	for i, out := range cells {
		if !strings.HasPrefix(out, "True True "+boxes[i].Spec.Name+" ") {
			t.Errorf("the first cell in %s prints %q", boxes[i].Spec.Name, out)
		}
	}
	if one, two := strings.Fields(cells[0]), strings.Fields(cells[1]); one[3] == two[3] || one[4] == two[4] {
		t.Errorf("the generators are equal: %q", cells)
	}
	each("echo $WHO > /tmp/mine")
	if out := each("cat /tmp/mine"); out != [2]string{"one", "two"} {
		t.Errorf("they share files: %q", out)
	}
	for _, box := range boxes {
		list, err := c.Processes(box.Spec.Name).List(ctx)
		if err != nil || len(list) != 1 || list[0].Spec.Tag != brig.StartTag || list[0].Result != nil {
			t.Errorf("the processes of %s are %+v, %v", box.Spec.Name, list, err)
		}
		if got := served(t, c, box.Spec.Name, "mine"); got != box.Spec.Name+"\n" {
			t.Errorf("the server in %s serves %q", box.Spec.Name, got)
		}
	}
	third := createCopy(t, c, brig.Spec{Name: "three", Env: map[string]string{"WHO": "three"}}).Spec.Name
	if _, err := c.Pause(ctx, third, brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	s.kill()
	s = startServer(t, s.dir, "--config", config)
	c = s.client()
	for _, box := range append(boxes, &brig.Sandbox{Spec: brig.Spec{Name: third}}) {
		if got := served(t, c, box.Spec.Name, "restored"); got == "" {
			t.Errorf("%s serves nothing", box.Spec.Name)
		}
	}
	r, err := c.RunCode(ctx, third, brig.Code{Source: "import sys, os\nprint('colorsys' in sys.modules, os.environ['WHO'])"}, nil)
	if err != nil || string(r.Stdout.Head) != "True three\n" {
		t.Errorf("a context after a pause and a restart: %+v, %v", r, err)
	}
	latest := createCopy(t, c, brig.Spec{Name: "again"})
	if _, err := c.Fork(ctx, latest.Spec.Name, brig.ForkSpec{Count: 2}); err != nil {
		t.Errorf("fork of a copy: %v", err)
	}
	saves, err := os.ReadDir(filepath.Join(s.dir, "saves"))
	if err != nil || len(saves) != 1 {
		t.Errorf("the saves are %v, %v", saves, err)
	}
	page, err := c.List(ctx, brig.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range page.Sandboxes {
		if err := c.Remove(ctx, box.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	if log := s.errs.String(); !strings.Contains(log, "ModuleNotFoundError") {
		t.Errorf("the log does not say why a template did not boot: %s", log)
	}
}

// served returns the content of a file from the web server in a sandbox.
func served(t *testing.T, c *client.Client, name, file string) string {
	t.Helper()
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return c.Dial(ctx, name, 8000)
	}}}
	resp, err := web.Get(fmt.Sprintf("http://inside:8000/%s", file))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestBootCrash verifies that a server that crashes while a template boots, or while a sandbox is
// created as a copy, leaves no remains, and that the next server boots the template again.
//
//suite:part crash waits
func TestBootCrash(t *testing.T) {
	needRoot(t)
	c := startCrashingServer(t, "pool: {size: -1}\ntemplates: {once: {image: host, boot_once: true, start: sleep 600}}\n")
	saves := func() []string {
		list, _ := filepath.Glob(filepath.Join(c.dir, "saves", "*"))
		return list
	}
	for _, point := range []string{"boot.made", "boot.saved", "boot.restored"} {
		t.Run(point, func(t *testing.T) {
			c.clearMarks(t)
			c.srv.t = t
			if point == "boot.restored" {
				eventually(t, "the template boots", func() bool { return len(saves()) > 0 })
				c.arm(point + "=crash")
				for end := time.Now().Add(promptTimeout); !c.hasReached(point, 0) && time.Now().Before(end); {
					_, _ = c.srv.client().Create(t.Context(), brig.Spec{Template: "once"}) // the server crashes
				}
			} else {
				c.srv.kill()
				c.arm(point + "=crash")
				c.launch() // it crashes while the template boots
			}
			svc := c.restart(t, point)
			page, err := svc.List(t.Context(), brig.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, box := range page.Sandboxes {
				if strings.HasPrefix(box.Spec.Name, "boot-") {
					t.Errorf("the sandbox that booted is on record: %+v", box)
				}
				if err := svc.Remove(t.Context(), box.Spec.Name); err != nil {
					t.Error(err)
				}
			}
			box := createCopy(t, c.srv.client(), brig.Spec{})
			list, err := svc.Processes(box.Spec.Name).List(t.Context())
			if err != nil || len(list) != 1 {
				t.Errorf("the processes of a copy are %+v, %v", list, err)
			}
			if err := svc.Remove(t.Context(), box.Spec.Name); err != nil {
				t.Error(err)
			}
			if remaining := saves(); len(remaining) != 1 {
				t.Errorf("the saves are %v", remaining)
			}
		})
	}
	c.srv.kill()
	sandboxes, err := os.ReadDir(filepath.Join(c.dir, "sandboxes"))
	if err != nil || len(sandboxes) > 0 {
		t.Errorf("instances are left: %v, %v", sandboxes, err)
	}
}
