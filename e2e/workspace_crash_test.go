package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// TestWorkspaceCrash kills the server at every point of a commit. The next server must have
// either the complete old version or the complete new version. The sandbox must still exist and
// be able to commit, and no remains of the interrupted commit may be left.
//
//suite:part workspaces
func TestWorkspaceCrash(t *testing.T) {
	needRoot(t)
	c := startCrashingServer(t, "pool: {size: -1}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b := sandboxRunner{t, c.srv.client(), ctx}
	if _, err := b.svc.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	b.create(brig.Spec{Name: "box", TTL: time.Hour, Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}})
	write := func(n int) { // all files of a version have the same content
		b.sh("box", fmt.Sprintf(`for i in 1 2 3 4 5; do echo %d > small$i; done; yes %d | head -c 3000000 > large`, n, n))
	}
	write(0)
	if _, err := b.svc.CommitWorkspace(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	points := 0
	for i, p := range failpoint.Points {
		if !strings.HasPrefix(p.Name, "workspace.") || p.Name == "workspace.created" || p.Name == "workspace.removed" {
			continue
		}
		points++
		t.Run(p.Name, func(t *testing.T) {
			b.t = t
			c.clearMarks(t)
			n := 100 + i
			write(n)
			before, err := b.svc.WorkspaceVersions(ctx, "data")
			if err != nil {
				t.Fatal(err)
			}
			c.arm(p.Name + "=crash")
			if out, err := b.svc.CommitWorkspace(ctx, "box"); err == nil {
				t.Errorf("the server has not died: %+v", out)
			}
			if !c.hasReached(p.Name, promptTimeout) {
				t.Error("nothing came by")
			}
			c.arm("")
			c.srv.kill()
			c.launch()
			c.srv.t = t
			c.srv.await()
			b.svc = c.srv.client()
			after, err := b.svc.WorkspaceVersions(ctx, "data")
			if err != nil {
				t.Fatal(err)
			}
			isNew := p.Name == "workspace.committed"
			if got := len(after) - len(before); got != map[bool]int{false: 0, true: 1}[isNew] {
				t.Errorf("there are %d more versions", got)
			}
			// Either version must be complete.
			o, err := b.svc.Run(ctx, brig.Program{
				Command:   []string{"sh", "-c", "cat small* | sort -u; sort -u large | head -2"},
				Workspace: brig.WorkspaceUse{Name: "data"},
			}, brig.IO{})
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(string(o.Stdout.Head))
			if isNew && (len(words) < 2 || words[0] != fmt.Sprint(n)) || strings.Contains(strings.Join(words, " "), fmt.Sprint(n)) != isNew {
				t.Errorf("it holds %q; the new one says %d", words, n)
			}
			for _, w := range words {
				if !strings.HasPrefix(words[0], w) { // the output may end within the file large
					t.Errorf("mixed versions: %q", words)
				}
			}
			out, err := b.svc.CommitWorkspace(ctx, "box")
			if err != nil || out.Version.Number != len(before)+1 {
				t.Errorf("the next commit: %+v, %v", out, err)
			}
		})
	}
	b.t = t
	if points < 5 {
		t.Errorf("only %d points", points)
	}
	// No object may remain when the workspace has been removed.
	if err := b.svc.Remove(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	c.arm("workspace.removed=crash")
	c.clearMarks(t)
	if err := b.svc.RemoveWorkspace(ctx, "data"); err == nil {
		t.Error("the server has not died")
	}
	c.arm("")
	c.srv.kill()
	c.launch()
	c.srv.await()
	b.svc = c.srv.client()
	if list, err := b.svc.Workspaces(ctx); err != nil || len(list) != 0 {
		t.Errorf("after its removal: %v, %v", list, err)
	}
	if _, err := b.svc.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	if vs, err := b.svc.WorkspaceVersions(ctx, "data"); err != nil || len(vs) != 0 {
		t.Errorf("a new one has the versions of the old: %v, %v", vs, err)
	}
	if err := b.svc.RemoveWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store is swept", func() bool {
		return len(treeOf(t, filepath.Join(c.dir, "workspaces", "objects"))) == 0
	})
}

// TestWorkspaceLeaseEnds verifies that a direct workspace is written back when
// the lease ends, even if the server was restarted in between.
//
//suite:part workspaces full
func TestWorkspaceLeaseEnds(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	b := sandboxRunner{t, s.client(), t.Context()}
	if _, err := b.svc.CreateWorkspace(b.ctx, "data"); err != nil {
		t.Fatal(err)
	}
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	b.create(brig.Spec{Name: "box", TTL: 20 * time.Second, FixedLease: true, Workspace: use})
	b.sh("box", "echo kept > f; (trap '' TERM; while :; do sleep 1; done) & (trap 'echo told > told; exit' TERM; while :; do sleep 0.1; done) & sleep 0.5")
	s.kill()
	s = startServer(t, dir)
	b.svc = s.client()
	eventually(t, "the lease ends", func() bool {
		box, err := b.svc.Get(b.ctx, "box")
		if err != nil {
			t.Fatal(err)
		}
		return box.State == brig.Ended && box.Exit.Reason == brig.LeaseExpired
	})
	o, err := b.svc.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "cat f told"}, Workspace: use}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != "kept\ntold\n" {
		t.Errorf("what was written back says %s%s, %v", o.Stdout.Head, o.Stderr.Head, err)
	}
	// Killed sandboxes and programs that time out write back, too.
	b.create(brig.Spec{Name: "killed", Workspace: use})
	b.sh("killed", "echo killed > k; (while :; do sleep 1; done) &")
	if _, err := b.svc.Kill(b.ctx, "killed"); err != nil {
		t.Fatal(err)
	}
	o, err = b.svc.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "cat k; echo late > l; sleep 100"}, Timeout: time.Second, Workspace: use}, brig.IO{})
	if err != nil || !o.TimedOut || string(o.Stdout.Head) != "killed\n" || o.Workspace == nil || o.Workspace.Error != nil || o.Workspace.Changed != 1 {
		t.Errorf("a run that ran out of time: %+v, %v", o, err)
	}
	// A program whose caller disconnects writes back, too.
	cut, hangUp := context.WithCancel(b.ctx)
	_, err = b.svc.Run(cut, brig.Program{Command: []string{"sh", "-c", "cat l; echo cut > c; echo now; sleep 100"}, Workspace: use},
		brig.IO{Stdout: callbackWriter(func(p []byte) {
			if strings.Contains(string(p), "now") {
				hangUp()
			}
		})})
	hangUp()
	if err == nil {
		t.Error("a run whose caller went away ended well")
	}
	eventually(t, "the run of a caller that went away is kept", func() bool {
		o, err := b.svc.Run(b.ctx, brig.Program{Command: []string{"cat", "/workspace/c"}, Workspace: brig.WorkspaceUse{Name: "data"}}, brig.IO{})
		return err == nil && string(o.Stdout.Head) == "cut\n"
	})
	// A program that exits with an error code writes back, too.
	o, err = b.svc.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "cat f; echo more > g; exit 3"}, Workspace: use}, brig.IO{})
	if err != nil || o.ExitCode != 3 || string(o.Stdout.Head) != "kept\n" || o.Workspace == nil || o.Workspace.Changed != 1 {
		t.Errorf("a run that fails: %+v, %v", o, err)
	}
	// A removal writes back, and fails if it cannot.
	b.create(brig.Spec{Name: "one", Workspace: use})
	b.create(brig.Spec{Name: "two", Workspace: use})
	b.sh("one", "echo one > f")
	b.sh("two", "echo two > f")
	if err := b.svc.Remove(b.ctx, "one"); err != nil {
		t.Fatal(err)
	}
	err = b.svc.Remove(b.ctx, "two")
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(brig.AsError(err).Hint, "kill") {
		t.Errorf("a removal that loses something: %v", err)
	}
	// A kill always ends the sandbox, and adds a note if the workspace was not written back.
	if box, err := b.svc.Kill(b.ctx, "two"); err != nil || !strings.Contains(strings.Join(box.Notes, "\n"), "workspace: not written back") {
		t.Fatalf("%+v, %v", box, err)
	}
	if err := b.svc.Remove(b.ctx, "two"); err != nil {
		t.Error(err)
	}
}

// callbackWriter is a writer that calls itself for each write.
type callbackWriter func(p []byte)

func (f callbackWriter) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// TestWorkspaceOutlivesCrashes verifies that a periodic save outlives a crash of the server and
// the sandbox, and that a stopping server saves changes. The control is a server that does not
// write back while sandboxes run.
//
//suite:part workspaces
func TestWorkspaceOutlivesCrashes(t *testing.T) {
	needRoot(t)
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	for name, every := range map[string]string{"saved": "300ms", "control": "-1s"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := writeConfig(t, "pool: {size: -1}\nworkspaces: {save_every: "+every+"}\n")
			s := startServer(t, dir, "--config", config)
			b := sandboxRunner{t, s.client(), t.Context()}
			if _, err := b.svc.CreateWorkspace(b.ctx, "data"); err != nil {
				t.Fatal(err)
			}
			box := b.create(brig.Spec{Name: "box", TTL: time.Hour, Workspace: use})
			b.sh("box", "echo kept > f")
			saved := func() int {
				versions, err := b.svc.WorkspaceVersions(b.ctx, "data")
				if err != nil {
					t.Fatal(err)
				}
				return len(versions)
			}
			if name == "saved" {
				eventually(t, "the workspace is written back while the sandbox runs", func() bool { return saved() > 0 })
			} else {
				time.Sleep(3 * time.Second)
			}
			s.kill()
			(&workspaceKiller{t: t, dir: dir, id: box.ID}).killSandbox()
			s = startServer(t, dir, "--config", config)
			b.svc = s.client()
			want := map[string]int{"saved": 1, "control": 0}[name]
			if got := saved(); got != want {
				t.Errorf("%d versions are there after the crash, want %d", got, want)
			}
			// A stopping server writes back as many workspaces as possible.
			b.create(brig.Spec{Name: "second", TTL: time.Hour, Workspace: use})
			b.sh("second", "echo stopped > g")
			before := saved()
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			s = startServer(t, dir, "--config", config)
			b.svc = s.client()
			if got := saved(); got <= before-1 || name == "control" && got != 0 || name == "saved" && got != 2 {
				t.Errorf("%d versions after the server was stopped, %d before", got, before)
			}
			// The sandbox continues to run, and ends as usual.
			b.sh("second", "echo end > h")
			if err := b.svc.Remove(b.ctx, "second"); err != nil {
				t.Fatal(err)
			}
			o, err := b.svc.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "cat g h"}, Workspace: use}, brig.IO{})
			if err != nil || string(o.Stdout.Head) != "stopped\nend\n" {
				t.Errorf("in the end there is %q, %v", o.Stdout.Head, err)
			}
		})
	}
}
