package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// withWorkspaces returns an engine on real gVisor with a workspace store in a
// directory, and the path of that directory.
func withWorkspaces(t *testing.T) (*engine.Engine, sandboxRunner, string) {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	e, ctx := engineWith(t, engine.Options{Workspaces: folderOf(t, dir)})
	return e, sandboxRunner{t, e, ctx}, dir
}

// makeTree creates the files of the first sandbox: text and binary files, modes, symbolic links
// that must not be followed, names that are not valid UTF-8, and special files.
const makeTree = `set -e
mkdir -p src/deep/er empty
echo hello > src/hello.txt
head -c 3000000 /dev/urandom > src/deep/er/random
printf '#!/bin/sh\necho ran\n' > src/run.sh; chmod 750 src/run.sh
ln src/hello.txt src/hard
ln -s /etc/passwd src/passwd
ln -s ../../../../etc/shadow src/deep/up
ln -s nowhere src/nowhere
: > src/nothing
touch -d '2001-02-03 04:05:06' src/old && echo old > src/old && touch -d '2001-02-03 04:05:06' src/old
printf x > "$(printf 'src/\377\376name')"
printf y > "$(printf 'src/line\nbreak')"
mkfifo src/pipe
chmod 500 src/deep/er
`

// sumTree prints checksums of all properties that must be the same in the next sandbox.
const sumTree = `cd /workspace && find . ! -type p -printf '%p %y %m %l\n' | LC_ALL=C sort | grep -v '^\. ' | od -c | sha256sum; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum; stat -c '%Y %U' src/old`

//suite:part workspaces waits
func TestWorkspaceOutlivesSandboxes(t *testing.T) {
	e, b, dir := withWorkspaces(t)
	ctx := b.ctx
	if _, err := e.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	box := b.create(brig.Spec{Name: "one", Workspace: use})
	if len(box.Notes) == 0 || !strings.Contains(strings.Join(box.Notes, "\n"), "workspace: snapshot bridge: a copy of version 0 of data") {
		t.Errorf("the notes are %q", box.Notes)
	}
	b.sh("one", makeTree)
	want := b.sh("one", sumTree)
	if _, err := e.Stop(ctx, "one", 0); err != nil {
		t.Fatal(err)
	}
	vs, err := e.WorkspaceVersions(ctx, "data")
	if err != nil || len(vs) != 1 || vs[0].Number != 1 || vs[0].Sandbox != box.ID || vs[0].Actor != "ann" || vs[0].Files != 8 {
		t.Fatalf("versions %+v, %v", vs, err)
	}
	b.create(brig.Spec{Name: "two", Workspace: brig.WorkspaceUse{Name: "data"}})
	if got := b.sh("two", sumTree); got != want {
		t.Errorf("the next sandbox has\n%s, want\n%s", got, want)
	}
	if got := b.sh("two", `cat src/hello.txt; ./src/run.sh; readlink src/passwd; test -e src/pipe || echo no pipe; stat -c '%h %U' src/hard`); got != "hello\nran\n/etc/passwd\nno pipe\n1 user\n" {
		t.Errorf("the next sandbox says %q", got)
	}
	// A single run reads the tree and writes a file.
	o, err := e.Run(ctx, brig.Program{Command: []string{"sh", "-c", sumTree + "; echo more > more"}, Workspace: use}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != want || o.Workspace == nil || o.Workspace.Version.Number != 2 ||
		len(o.Workspace.Changes) != 1 || o.Workspace.Changes[0] != (brig.WorkspaceChange{Path: "more", Kind: brig.WorkspaceAdded, Type: brig.RegularFile, Size: 5}) {
		t.Fatalf("the one-shot: %+v, %+v, %v", o, o.Workspace, err)
	}
	py, err := e.Run(ctx, brig.Program{Language: brig.Python, Code: "print(open('more').read())", Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceReadOnly}}, brig.IO{})
	if err != nil || string(py.Stdout.Head) != "more\n\n" || py.Workspace != nil {
		t.Errorf("python: %+v, %v", py, err)
	}
	// The symbolic link was not followed: the store contains no file of the host.
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(passwd)
	for name := range treeOf(t, dir) {
		if strings.Contains(name, hex.EncodeToString(sum[:])) {
			t.Error("the store has the host's /etc/passwd")
		}
	}
	// Merge: the changes of the second sandbox are applied on top of version 2.
	b.sh("two", "echo changed > src/hello.txt; rm src/old")
	c, err := e.CommitWorkspace(ctx, "two")
	if err != nil || c.Version.Number != 3 || c.Version.Base != 1 || c.Changed != 2 {
		t.Fatalf("commit %+v, %v", c, err)
	}
	b.sh("two", "echo again > src/hello.txt")
	if c, err = e.CommitWorkspace(ctx, "two"); err != nil || c.Version.Number != 4 || c.Changed != 1 {
		t.Fatalf("the second commit %+v, %v", c, err)
	}
	if c, err = e.CommitWorkspace(ctx, "two"); err != nil || c.Version.Number != 4 || c.Changed != 0 {
		t.Errorf("a commit of nothing %+v, %v", c, err)
	}
	d, err := e.DiffWorkspace(ctx, "data", 1, 4)
	if err != nil || fmt.Sprint(d) != "[{more added file 5} {src/hello.txt changed file 6} {src/old removed file 0}]" {
		t.Errorf("diff %v, %v", d, err)
	}
	v, err := e.RestoreWorkspace(ctx, "data", 1)
	if err != nil || v.Number != 5 || v.Restored != 1 || v.Digest != vs[0].Digest {
		t.Errorf("restore %+v, %v", v, err)
	}
	if _, err = e.CommitWorkspace(ctx, "two"); err != nil { // no changes
		t.Error(err)
	}
	b.sh("two", "echo mine > src/hello.txt")
	if _, err = e.CommitWorkspace(ctx, "two"); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "src/hello.txt") {
		t.Errorf("a conflict is %v", err)
	}
	if err := e.Remove(ctx, "two"); err != nil {
		t.Fatal(err) // an overlay is not written back
	}
	if err := e.RemoveWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	// The conflict may have triggered a sweep, and the next sweep follows a minute later.
	eventuallyWithin(t, time.Minute+promptTimeout, "the store is swept", func() bool {
		for name := range treeOf(t, filepath.Join(dir, "objects")) {
			if strings.Contains(name, "/blobs/") || strings.Contains(name, "/versions/") {
				return false
			}
		}
		return true
	})
}

// TestWorkspaceWritePolicy verifies the four write modes: read_only, overlay, direct, and direct
// within prefixes.
//
//suite:part workspaces
func TestWorkspaceWritePolicy(t *testing.T) {
	e, b, _ := withWorkspaces(t)
	ctx := b.ctx
	if _, err := e.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	seed := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	o, err := e.Run(ctx, brig.Program{Command: []string{"sh", "-c", "mkdir -p outputs src; echo a > outputs/a; echo s > src/s; echo t > top"}, Workspace: seed}, brig.IO{})
	if err != nil || o.Workspace == nil || o.Workspace.Error != nil || o.Workspace.Changed != 5 {
		t.Fatalf("%+v, %v", o, err)
	}
	b.create(brig.Spec{Name: "ro", Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceReadOnly}})
	if got := b.sh("ro", `for f in new outputs/new; do echo x > $f && echo wrote $f; done; for f in top src/s; do echo x >> $f && echo wrote $f; done; rm -rf top src outputs; mv src other; chmod u+w top; cat top src/s outputs/a; exit 0`); got != "t\ns\na\n" {
		t.Errorf("what is to read only says %q", got)
	}
	_, err = e.CommitWorkspace(ctx, "ro")
	if brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a commit of what is to read only: %v", err)
	}
	b.create(brig.Spec{Name: "over", Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceOverlay}})
	b.sh("over", "echo x > top")
	if err := e.Remove(ctx, "over"); err != nil {
		t.Fatal(err)
	}
	if vs, err := e.WorkspaceVersions(ctx, "data"); err != nil || len(vs) != 1 {
		t.Errorf("after an overlay there are %d versions, %v", len(vs), err)
	}
	b.create(brig.Spec{Name: "some", Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect, Prefixes: []string{"/workspace/outputs", "memories/me"}}})
	b.sh("some", "echo b > outputs/b; rm outputs/a; echo x > top; rm -r src; echo n > new; mkdir -p memories/me memories/you; echo m > memories/me/m; echo y > memories/you/y")
	c, err := e.CommitWorkspace(ctx, "some")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, ch := range c.Changes {
		got[ch.Path] = string(ch.Kind)
	}
	want := map[string]string{"outputs/a": "removed", "outputs/b": "added", "memories": "added", "memories/me": "added", "memories/me/m": "added"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("changed %v, want %v", got, want)
	}
	skipped := map[string]bool{}
	for _, s := range c.Skipped {
		skipped[s.Path] = strings.Contains(s.Reason, "outside")
	}
	if fmt.Sprint(skipped) != "map[memories/you:true memories/you/y:true new:true src:true src/s:true top:true]" || c.Passed != 6 {
		t.Errorf("skipped %v, %d", skipped, c.Passed)
	}
	b.create(brig.Spec{Name: "check", Workspace: brig.WorkspaceUse{Name: "data"}})
	if got := b.sh("check", "find . -type f | LC_ALL=C sort; cat top"); got != "./memories/me/m\n./outputs/b\n./src/s\n./top\nt\n" {
		t.Errorf("afterwards there is %q", got)
	}
}

// TestWorkspaceMainProgram verifies that a sandbox receives its workspace before its main program
// starts, and writes it back at its end, however it ends and even if the server crashes in
// between.
//
//suite:part workspaces
func TestWorkspaceMainProgram(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	b := sandboxRunner{t, s.client(), t.Context()}
	if _, err := b.svc.CreateWorkspace(b.ctx, "data"); err != nil {
		t.Fatal(err)
	}
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	ended := func(name string) *brig.Sandbox {
		t.Helper()
		var box *brig.Sandbox
		eventually(t, name+" ends", func() (over bool) {
			var err error
			if box, err = b.svc.Get(b.ctx, name); err != nil {
				t.Fatal(err)
			}
			return box.State == brig.Ended
		})
		return box
	}
	content := func() string {
		t.Helper()
		o, err := b.svc.Run(b.ctx, brig.Program{Command: []string{"cat", "/workspace/n"}, Workspace: brig.WorkspaceUse{Name: "data"}}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		return string(o.Stdout.Head)
	}
	main := func(name, shell string, use brig.WorkspaceUse) {
		t.Helper()
		b.create(brig.Spec{Name: name, TTL: time.Minute, Command: &brig.Command{Shell: shell}, Workspace: use})
	}
	main("first", "echo 1 > n; exit 3", use)
	if box := ended("first"); box.Exit.Reason != brig.Exited || box.Exit.Code != 3 {
		t.Errorf("the first one ended as %+v", box.Exit)
	}
	if got := content(); got != "1\n" {
		t.Fatalf("it left %q", got)
	}
	// The program reads the current files; changes in an overlay are lost when
	// the program ends.
	main("over", "cat n; echo lost > n", brig.WorkspaceUse{Name: "data"})
	if box := ended("over"); box.Exit.Reason != brig.Exited || box.Exit.Code != 0 {
		t.Errorf("the overlay ended as %+v", box.Exit)
	}
	log, err := b.svc.Logs(b.ctx, "over", brig.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	printed, err := io.ReadAll(log)
	log.Close()
	if err != nil || string(printed) != "1\n" || content() != "1\n" {
		t.Errorf("the overlay said %q, %v, and left %q", printed, err, content())
	}
	// The sandbox is stopped while the program runs.
	main("stopped", "trap 'echo 2 > n; exit 5' TERM; echo ready; while :; do sleep 0.1; done", use)
	eventually(t, "the program runs", func() bool {
		log, err := b.svc.Logs(b.ctx, "stopped", brig.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		printed, err := io.ReadAll(log)
		return err == nil && string(printed) == "ready\n"
	})
	if box, err := b.svc.Stop(b.ctx, "stopped", 5*time.Second); err != nil || box.Exit.Reason != brig.Stopped || box.Exit.Code != 5 {
		t.Errorf("Stop = %+v, %v", box, err)
	}
	if got := content(); got != "2\n" {
		t.Errorf("the stopped one left %q", got)
	}
	// The program ends while the server is down.
	main("alone", "sleep 3; echo 3 > n", use)
	s.kill()
	time.Sleep(4 * time.Second)
	s = startServer(t, dir)
	b.svc = s.client()
	if box := ended("alone"); box.Exit.Reason != brig.Exited || box.Exit.Code != 0 {
		t.Errorf("the one without a server ended as %+v", box.Exit)
	}
	if got := content(); got != "3\n" {
		t.Errorf("the one without a server left %q", got)
	}
	// A failed write-back is reported in a note, and the sandbox still ends.
	main("conflict", "echo 4 > n; until [ -e /tmp/go ]; do sleep 0.1; done", use)
	main("winner", "echo 5 > n", use)
	ended("winner")
	b.sh("conflict", "touch /tmp/go")
	if box := ended("conflict"); box.Exit.Reason != brig.Exited || !strings.Contains(strings.Join(box.Notes, "\n"), "workspace: not written back") {
		t.Errorf("the conflict ended as %+v, %q", box.Exit, box.Notes)
	}
	if got := content(); got != "5\n" {
		t.Errorf("after the conflict there is %q", got)
	}
}
