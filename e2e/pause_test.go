package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// runCell runs code in a context of a sandbox and returns its standard output.
func runCell(t *testing.T, ctx context.Context, svc brig.Service, name, contextID, source string) string {
	t.Helper()
	r, err := svc.RunCode(ctx, name, brig.Code{Context: contextID, Source: source}, nil)
	if err != nil {
		t.Fatalf("cell %q: %v", source, err)
	}
	if r.Error != nil {
		t.Fatalf("cell %q: %+v", source, r.Error)
	}
	return strings.TrimSpace(string(r.Stdout.Head))
}

// shellOut runs a script in a sandbox and returns its standard output.
func shellOut(t *testing.T, ctx context.Context, svc brig.Service, name, script string) string {
	t.Helper()
	var out, errs bytes.Buffer
	r, err := svc.Exec(ctx, name, brig.Command{Shell: script}, brig.IO{Stdout: &out, Stderr: &errs})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%q: %+v, %v: %s", script, r, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// wantPausedOnHost fails the test unless a sandbox has a save, but no process and no cgroup on
// the host.
func wantPausedOnHost(t *testing.T, dir string, id brig.ID) {
	t.Helper()
	for _, remaining := range traces(t, dir) {
		if strings.Contains(remaining, string(id)) && !strings.HasPrefix(remaining, "folder ") {
			t.Errorf("the host still has %s", remaining)
		}
	}
	for _, name := range []string{"state", "overlay"} {
		if _, err := os.Stat(filepath.Join(dir, "sandboxes", string(id), name)); err == nil {
			t.Errorf("the folder still has %s", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "saves", string(id), "manifest.json")); err != nil {
		t.Errorf("the save: %v", err)
	}
	_, plain := os.Stat(filepath.Join(dir, "saves", string(id), "pages.img"))
	if _, packed := os.Stat(filepath.Join(dir, "saves", string(id), "packed.seal")); plain != nil && packed != nil {
		t.Errorf("the save: %v, %v", plain, packed)
	}
}

// TestPauseToDisk verifies that a paused sandbox has no process and no cgroup on the host, and
// that a call resumes it with its variables, files, processes and open files, even repeatedly.
//
//suite:part core
func TestPauseToDisk(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	box, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true})
	if err != nil {
		t.Fatal(err)
	}
	cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, e, "one", cx.ID, "x = 41\nf = open('/tmp/open', 'w+')\nimport threading, time\nticks = []\ndef beat():\n    while True:\n        time.sleep(.05); ticks.append(1)\nthreading.Thread(target=beat, daemon=True).start()")
	shellOut(t, ctx, e, "one", "echo one > /workspace/a; echo two > /tmp/b; echo three > /dev/shm/c")
	server, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	shellOut(t, ctx, e, "one", awaitPort(8000))
	for generation := range 3 {
		paused, err := e.Pause(ctx, "one", brig.PauseOptions{})
		if err != nil {
			t.Fatalf("pause: %v", err)
		}
		if paused.State != brig.Paused || paused.Pause == nil || paused.Pause.Bytes < 1<<20 {
			t.Errorf("after the pause it is %s: %+v", paused.State, paused.Pause)
		}
		wantPausedOnHost(t, dir, box.ID)
		if second, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil || second.State != brig.Paused {
			t.Errorf("a second pause: %v", err)
		}
		want := fmt.Sprint(42 + generation)
		if got := runCell(t, ctx, e, "one", cx.ID, "x += 1\nn = len(ticks)\nwhile len(ticks) == n: time.sleep(.02)\nf.write('.')\nprint(x, len(ticks) > n)"); got != want+" True" {
			t.Errorf("generation %d: the context printed %q, want %q", generation, got, want+" True")
		}
		if now, err := e.Get(ctx, "one"); err != nil || now.State != brig.Running || now.Pause != nil || time.Until(now.Expires) > time.Hour {
			t.Errorf("after its use it is %+v, %v", now, err)
		}
		if got := shellOut(t, ctx, e, "one", "cat /workspace/a /tmp/b /dev/shm/c | tr '\\n' ' '; hostname"); got != "one two three one" {
			t.Errorf("generation %d: its files are %q", generation, got)
		}
		list, err := e.Processes("one").List(ctx)
		if err != nil || len(list) != 1 || list[0].PID != server.PID {
			t.Errorf("generation %d: its processes are %+v, %v", generation, list, err)
		}
		if got := runCell(t, ctx, e, "one", cx.ID, "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:8000/').status)"); got != "200" {
			t.Errorf("generation %d: the server in it responded with %q", generation, got)
		}
		if _, err := os.Stat(filepath.Join(dir, "saves", string(box.ID))); err == nil {
			t.Error("the save of a running sandbox is still there")
		}
	}
	if err := e.Processes("one").Signal(ctx, server.PID, "SIGTERM"); err != nil {
		t.Error(err)
	}
	if err := e.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	checkNoHostTraces(t, dir)
}

// TestConcurrentResumesStartSandboxOnce verifies that many concurrent calls to a paused sandbox
// cause only one resume.
//
//suite:part core
func TestConcurrentResumesStartSandboxOnce(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for range 100 {
		work.Go(func() {
			if _, err := e.Files("one").Stat(ctx, brig.Path{Name: "/workspace"}); err != nil {
				t.Errorf("stat: %v", err)
			}
		})
	}
	work.Wait()
	page, err := e.Audit(ctx, brig.AuditQuery{Sandbox: "one", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	resumes := 0
	for _, l := range page.Lines {
		if l.Op == brig.OpResume.Name {
			resumes++
			if l.Actor != "ann" || l.Detail[brig.DetailWhy] != "use" {
				t.Errorf("the audit log has the resume as %+v", l.Event)
			}
		}
	}
	if resumes != 1 {
		t.Errorf("%d resumes are on record, want 1", resumes)
	}
}

// TestPauseRefused verifies that a sandbox is not paused if one of its programs
// cannot be saved. The error names the program, and the sandbox continues to
// run. The control is the same sandbox without that program.
//
//suite:part core
func TestPauseRefused(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, e, "one", cx.ID, "x = 41\nimport subprocess\nchild = subprocess.Popen(['sleep', '1000'])")
	_, err = e.Pause(ctx, "one", brig.PauseOptions{})
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "sleep") {
		t.Fatalf("a pause with a program that a cell has started: %v", err)
	}
	if got := runCell(t, ctx, e, "one", cx.ID, "child.kill(); child.wait()\nprint(x + 1)"); got != "42" {
		t.Errorf("after the refusal the context printed %q", got)
	}
	proc, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "1001"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = e.Pause(ctx, "one", brig.PauseOptions{}); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("a pause with a process: %v", err)
	}
	if err := e.Processes("one").Signal(ctx, proc.PID, "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	awaitNoProcess(t, ctx, e, "one")
	if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Errorf("control: %v", err)
	}
	if got := runCell(t, ctx, e, "one", cx.ID, "print(x + 2)"); got != "43" {
		t.Errorf("after the pause the context printed %q", got)
	}
}

// awaitNoProcess waits until no background process runs in a sandbox.
func awaitNoProcess(t *testing.T, ctx context.Context, svc brig.Service, name string) {
	t.Helper()
	for end := time.Now().Add(2 * promptTimeout); ; time.Sleep(10 * time.Millisecond) {
		list, err := svc.Processes(name).List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list, func(p *brig.ProcessInfo) bool { return p.Result == nil }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes still run: %+v", list)
		}
	}
}

// TestPausedSandboxesCanBeEnded verifies that a paused sandbox can be ended in every way, and that
// no resources remain on the host.
//
//suite:part core
func TestPausedSandboxesCanBeEnded(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	for name, end := range map[string]func(string) error{
		"stop":   func(name string) error { _, err := e.Stop(ctx, name, time.Second); return err },
		"kill":   func(name string) error { _, err := e.Kill(ctx, name); return err },
		"remove": func(name string) error { return e.Remove(ctx, name) },
	} {
		box, err := e.Create(ctx, brig.Spec{Name: name, Pausable: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Pause(ctx, name, brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := end(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "saves", string(box.ID))); err == nil {
			t.Errorf("after %s the save is still there", name)
		}
		if name == "remove" {
			continue
		}
		if now, err := e.Get(ctx, name); err != nil || now.State != brig.Ended || now.Pause != nil || now.Exit == nil {
			t.Errorf("after %s it is %+v, %v", name, now, err)
		}
		if err := e.Remove(ctx, name); err != nil {
			t.Errorf("remove after %s: %v", name, err)
		}
	}
	checkNoHostTraces(t, dir)
}

// TestPauseOutlivesServer verifies over REST that a paused sandbox still exists
// after its server was killed, and can be resumed on the next server.
//
//suite:part crash
func TestPauseOutlivesServer(t *testing.T) {
	needRoot(t)
	ctx, dir := t.Context(), t.TempDir()
	s := startServer(t, dir)
	svc := s.client()
	box, err := svc.Create(ctx, brig.Spec{Name: "one", Pausable: true})
	if err != nil {
		t.Fatal(err)
	}
	cx, err := svc.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, svc, "one", cx.ID, "x = 41")
	if paused, err := svc.Pause(ctx, "one", brig.PauseOptions{}); err != nil || paused.State != brig.Paused || paused.Pause == nil {
		t.Fatalf("pause: %+v, %v", paused, err)
	}
	s.kill()
	svc = startServer(t, dir).client()
	now, err := svc.Get(ctx, "one")
	if err != nil || now.State != brig.Paused || now.Pause.Bytes < 1<<20 || now.ID != box.ID {
		t.Fatalf("the next server has %+v, %v", now, err)
	}
	wantPausedOnHost(t, dir, box.ID)
	if got := runCell(t, ctx, svc, "one", cx.ID, "print(x + 1)"); got != "42" {
		t.Errorf("its context printed %q", got)
	}
	if err := svc.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
}
