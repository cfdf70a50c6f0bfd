package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// oddFiles creates files of all kinds in the writable layer, and describeOddFiles prints their
// properties, which must be unchanged after a boot.
const (
	oddFiles = `set -e
mkdir -p /workspace/odd/d && cd /workspace/odd
printf hello > f; ln f hard; ln -s f soft; ln -P soft softhard; ln -s nowhere dangling
chmod 4751 f; touch -d 2001-02-03T04:05:06Z f; mkfifo -m 600 pipe
truncate -s 5G sparse; printf end >> sparse
head -c 3000000 /dev/urandom > big; sha256sum big > d/sum
printf x > "$(printf 'caf\351 \n')"; printf y > 'ünïcode'; printf long > "$(printf 'n%.0s' $(seq 250))"
mkdir -m 1777 sticky; rm -rf /etc/skel; mkdir /etc/skel; echo mine > /etc/skel/new; rm /etc/hostname; echo changed > /etc/issue
ln -P soft /etc/skel/softhard`
	describeOddFiles = `set -e
cd /workspace/odd; sha256sum -c d/sum
stat -c '%F %a %u %g %h %s %n' f hard soft softhard dangling pipe sparse d sticky; stat -c %Y f; readlink softhard /etc/skel/softhard
tail -c 3 sparse; ls | od -c; ls -A /etc/skel; cat /etc/skel/new /etc/issue; ls /etc/hostname 2>&1 || true`
)

// asRoot runs a script as root and returns its output.
func asRoot(t *testing.T, ctx context.Context, svc brig.Service, name, script string) string {
	t.Helper()
	var out, errs strings.Builder
	r, err := svc.Exec(ctx, name, brig.Command{Shell: script, User: "root"}, brig.IO{Stdout: &out, Stderr: &errs})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%q: %+v, %v: %s", script, r, err, errs.String())
	}
	return out.String()
}

// TestPauseFiles verifies that a sandbox can be paused with its files only, even if its programs
// prevent a pause with memory. The next use boots it again: files of all kinds and its ID are
// unchanged, and programs, contexts and memory contents are lost. The control is a pause with
// memory, which is rejected.
//
//suite:part core
func TestPauseFiles(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	box, err := e.Create(ctx, brig.Spec{Name: "one", Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	asRoot(t, ctx, e, "one", oddFiles)
	want := asRoot(t, ctx, e, "one", describeOddFiles)
	for generation := range 3 {
		cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
		if err != nil {
			t.Fatal(err)
		}
		runCell(t, ctx, e, "one", cx.ID, "import subprocess\nsubprocess.Popen(['sleep', '1000'])")
		proc, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "1001"}}})
		if err != nil {
			t.Fatal(err)
		}
		shellOut(t, ctx, e, "one", "echo lost > /tmp/b; echo lost > /dev/shm/c; echo . >> /workspace/count")
		if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); brig.KindOf(err) != brig.FailedPrecondition {
			t.Fatalf("control: a pause with memory: %v", err)
		}
		paused, err := e.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true})
		if err != nil {
			t.Fatalf("pause: %v", err)
		}
		if paused.State != brig.Paused || paused.Pause == nil || !paused.Pause.FilesOnly || paused.Pause.Bytes < 3_000_000 || paused.Pause.Bytes > 6_000_000 {
			t.Errorf("after the pause it is %s: %+v", paused.State, paused.Pause)
		}
		wantPausedOnHost(t, dir, box.ID)
		if generation == 0 {
			if _, err := e.Resume(ctx, "one"); err != nil {
				t.Fatalf("resume: %v", err)
			}
		}
		if got := asRoot(t, ctx, e, "one", describeOddFiles); got != want {
			t.Errorf("generation %d: its files are\n%s\nwant\n%s", generation, got, want)
		}
		if got := shellOut(t, ctx, e, "one", "ls /tmp /dev/shm; wc -l < /workspace/count; ps ax | grep -c '[s]leep 100' || true; hostname"); strings.Contains(got, "b\n") || !strings.HasSuffix(got, "one") || !strings.Contains(got, "\n0\n") {
			t.Errorf("generation %d: it has %q", generation, got)
		}
		now, err := e.Get(ctx, "one")
		if err != nil || now.ID != box.ID || now.State != brig.Running || now.Pause != nil || now.Spec.Labels["a"] != "b" {
			t.Errorf("after its use it is %+v, %v", now, err)
		}
		_, err = e.RunCode(ctx, "one", brig.Code{Context: cx.ID, Source: "1"}, nil)
		if brig.KindOf(err) != brig.NotFound || !strings.Contains(brig.AsError(err).Hint, "only the files") {
			t.Errorf("a cell in a context of before: %v", err)
		}
		if err := e.Processes("one").Signal(ctx, proc.PID, "SIGTERM"); brig.KindOf(err) != brig.NotFound {
			t.Errorf("a signal to a process of before: %v", err)
		}
		if remaining, _ := filepath.Glob(filepath.Join(dir, "saves", "*")); len(remaining) > 0 {
			t.Errorf("saves are left: %v", remaining)
		}
	}
	if err := e.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	checkNoHostTraces(t, dir)
}

// pretendOtherBuild modifies the manifest of a save as if another build of Brig, with another
// gVisor, had written it on another CPU model.
func pretendOtherBuild(t *testing.T, dir string, id brig.ID) {
	t.Helper()
	name := filepath.Join(dir, "saves", string(id), "manifest.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	m["Build"] = map[string]string{"Engine": "other", "Agent": "other", "GVisor": "v0.0.0", "CPU": "fpu other"}
	if b, err = json.Marshal(m); err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPauseFilesOtherBuild verifies that another build of Brig, on another CPU model, can resume
// a sandbox that was paused with its files only. The control is a sandbox that was paused with
// memory, whose resume is rejected and which stays paused.
//
//suite:part core
func TestPauseFilesOtherBuild(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	for name, o := range map[string]brig.PauseOptions{"files": {FilesOnly: true}, "memory": {}} {
		box, err := e.Create(ctx, brig.Spec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		shellOut(t, ctx, e, name, "echo kept > /workspace/a")
		if _, err := e.Pause(ctx, name, o); err != nil {
			t.Fatal(err)
		}
		pretendOtherBuild(t, dir, box.ID)
	}
	if got := shellOut(t, ctx, e, "files", "cat /workspace/a"); got != "kept" {
		t.Errorf("its file contains %q", got)
	}
	_, err := e.Resume(ctx, "memory")
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "gVisor v0.0.0") {
		t.Errorf("control: %v", err)
	}
	if now, err := e.Get(ctx, "memory"); err != nil || now.State != brig.Paused {
		t.Errorf("it is %+v, %v", now, err)
	}
}

// TestBootWithFilesStartsMainProgram verifies that a sandbox that boots with its files first runs
// its main program or the start command of its template. No call can use it earlier. Its copies do
// the same while the original stays paused.
//
//suite:part core
func TestBootWithFilesStartsMainProgram(t *testing.T) {
	needRoot(t)
	const start = "echo boot >> /workspace/boots; exec sleep 1000"
	e, ctx := engineWith(t, engine.Options{Templates: []brig.Template{{
		Name: "server", Image: "host", Start: &brig.Command{Shell: start}, Ready: &brig.Command{Shell: "test -s /workspace/boots"},
	}}})
	for name, spec := range map[string]brig.Spec{
		"main": {Command: &brig.Command{Shell: start}}, "template": {Template: "server", Env: map[string]string{"BRIG_RESTORED": "echo copied > /workspace/copied"}},
	} {
		spec.Name = name
		if _, err := e.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
		boots := func(name, want string) {
			t.Helper()
			shellOut(t, ctx, e, name, "until test $(wc -l < /workspace/boots) -ge "+want+"; do sleep .05; done")
			if got := shellOut(t, ctx, e, name, "wc -l < /workspace/boots; ps ax | grep -c '[s]leep 1000'"); got != want+"\n1" {
				t.Errorf("%s: boots and programs are %q, want %s and 1", name, got, want)
			}
		}
		boots(name, "1")
		if _, err := e.Pause(ctx, name, brig.PauseOptions{FilesOnly: true}); err != nil {
			t.Fatalf("%s: pause: %v", name, err)
		}
		copies, err := e.Fork(ctx, name, brig.ForkSpec{Count: 2})
		if err != nil {
			t.Fatalf("%s: fork: %v", name, err)
		}
		for _, c := range copies {
			boots(c.Spec.Name, "2")
			if got := shellOut(t, ctx, e, c.Spec.Name, "hostname; test ! -e /run/brig/generation; cat /workspace/copied 2> /dev/null || true"); got != strings.TrimSpace(c.Spec.Name+"\n"+map[string]string{"template": "copied"}[name]) {
				t.Errorf("%s: the copy has %q", name, got)
			}
		}
		if now, err := e.Get(ctx, name); err != nil || now.State != brig.Paused {
			t.Errorf("%s: the original is %+v, %v", name, now, err)
		}
		boots(name, "2")
		if name == "template" {
			list, err := e.Processes(name).List(ctx)
			if err != nil || len(list) != 1 || list[0].Spec.Tag != brig.StartTag {
				t.Errorf("its processes are %+v, %v", list, err)
			}
		}
	}
}

// TestPauseFilesWorkspace verifies that a pause with the files only writes back the workspace,
// and that the files are present after the resume.
//
//suite:part workspaces
func TestPauseFilesWorkspace(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	if _, err := e.Create(ctx, brig.Spec{Name: "one", Workspace: use}); err != nil {
		t.Fatal(err)
	}
	newest := func() (n int) {
		t.Helper()
		all, err := e.WorkspaceVersions(ctx, "data")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			n = max(n, v.Number)
		}
		return n
	}
	for i, want := range []int{1, 2} {
		shellOut(t, ctx, e, "one", "echo . >> /workspace/a")
		if _, err := e.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
			t.Fatal(err)
		}
		if n := newest(); n != want {
			t.Errorf("after pause %d the newest version is %d, want %d", i, n, want)
		}
	}
	if got := shellOut(t, ctx, e, "one", "wc -l < /workspace/a"); got != "2" {
		t.Errorf("its file has %s lines, want 2", got)
	}
	if _, err := e.Stop(ctx, "one", time.Second); err != nil {
		t.Fatal(err)
	}
	if n := newest(); n != 2 {
		t.Errorf("without a change the stop made version %d", n)
	}
}

// TestPauseFilesRefused verifies that a failed save leaves the sandbox unchanged. The save fails
// because a file has more attributes than fit into the archive. The control is the same sandbox
// without the attributes.
//
//suite:part core
func TestPauseFilesRefused(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	if _, err := e.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, e, "one", cx.ID, "import os\nx = 41\nopen('/workspace/a', 'w')\nfor i in range(20): os.setxattr('/workspace/a', f'user.{i}', b'v' * 60000)")
	if _, err = e.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Fatalf("pause: %v", err)
	}
	if remaining, _ := filepath.Glob(filepath.Join(dir, "saves", "*")); len(remaining) > 0 {
		t.Errorf("saves are left: %v", remaining)
	}
	if got := runCell(t, ctx, e, "one", cx.ID, "os.remove('/workspace/a')\nprint(x + 1)"); got != "42" {
		t.Errorf("after the refusal the context printed %q", got)
	}
	if _, err = e.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// TestPauseFilesIsBounded verifies that repeated pauses do not increase a sandbox's disk usage,
// although deleted files that are still open are saved. A pause is rejected if the saved files
// would exceed the disk limit, or if there are so many names that a boot could exceed the memory
// limit. The sandbox continues to run after each rejection.
//
//suite:part core
func TestPauseFilesIsBounded(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one", Limits: brig.Limits{Disk: 64 * brig.MiB, Memory: 128 * brig.MiB}}); err != nil {
		t.Fatal(err)
	}
	files := brig.PauseOptions{FilesOnly: true}
	refused := func(what string) {
		t.Helper()
		if _, err := e.Pause(ctx, "one", files); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), what) {
			t.Errorf("want a refusal for %q: %v", what, err)
		}
		if now, err := e.Get(ctx, "one"); err != nil || now.State != brig.Running {
			t.Errorf("it is %+v, %v", now, err)
		}
	}
	const hold = "exec 3<> /workspace/x; head -c 40M /dev/urandom >&3; rm /workspace/x; echo > /workspace/held; sleep 1000"
	for i := range 2 {
		proc, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Shell: hold}})
		if err != nil {
			t.Fatal(err)
		}
		shellOut(t, ctx, e, "one", "until test -e /workspace/held; do sleep .05; done; rm /workspace/held")
		if i == 1 {
			refused("deleted")
			if err := e.Processes("one").Signal(ctx, proc.PID, "SIGKILL"); err != nil {
				t.Fatal(err)
			}
			awaitNoProcess(t, ctx, e, "one")
		}
		if _, err := e.Pause(ctx, "one", files); err != nil {
			t.Fatalf("pause %d: %v", i, err)
		}
	}
	shellOut(t, ctx, e, "one", "cd /workspace; seq 20000 | xargs touch")
	refused("the names of its files")
	shellOut(t, ctx, e, "one", "find /workspace -type f -delete")
	if _, err := e.Pause(ctx, "one", files); err != nil {
		t.Errorf("control: %v", err)
	}
	shellOut(t, ctx, e, "one", "true")
}
