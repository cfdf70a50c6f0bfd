package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// TestWorkspaceCrash kills the server at every point of a commit. The next
// server has the old version or the new one, whole; the sandbox is still there
// and commits again; and what a dead commit left is swept.
//
//suite:part workspaces
func TestWorkspaceCrash(t *testing.T) {
	needRoot(t)
	dir, lab := dataDir(t), t.TempDir()
	c := &crasher{t: t, dir: dir, binary: bin(t, "test/brig-failpoints"), rules: filepath.Join(lab, "rules"), marks: filepath.Join(lab, "marks")}
	if err := os.WriteFile(filepath.Join(lab, "brig.yaml"), []byte("pool: {size: -1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.arm("")
	c.launch()
	c.srv.await()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b := boxed{t, c.srv.client(), ctx}
	if _, err := b.svc.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	b.create(brig.Spec{Name: "box", TTL: time.Hour, Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}})
	write := func(n int) { // each version is of one piece: every file says the same
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
			os.RemoveAll(c.marks)
			if err := os.Mkdir(c.marks, 0o700); err != nil {
				t.Fatal(err)
			}
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
			if !c.visited(p.Name, time.Second) {
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
			// Whichever it is, it is whole.
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
				if !strings.HasPrefix(words[0], w) { // the end of large may be cut
					t.Errorf("it is torn: %q", words)
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
	// Nothing is left of any of it when the workspace is gone.
	if err := b.svc.Remove(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	c.arm("workspace.removed=crash")
	_ = os.RemoveAll(c.marks)
	_ = os.Mkdir(c.marks, 0o700)
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
		return len(treeOf(t, filepath.Join(dir, "workspaces", "objects"))) == 0
	})
}

// A lease that ends writes a direct workspace back, and so does the end of a
// server's life in between.
//
//suite:part workspaces full
func TestWorkspaceLeaseEnds(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir)
	b := boxed{t, s.client(), t.Context()}
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
	// Whoever kills does not want it; whoever runs out of time neither.
	b.create(brig.Spec{Name: "killed", Workspace: use})
	b.sh("killed", "echo lost > f")
	if _, err := b.svc.Kill(b.ctx, "killed"); err != nil {
		t.Fatal(err)
	}
	o, err = b.svc.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "echo lost > f; sleep 100"}, Timeout: time.Second, Workspace: use}, brig.IO{})
	if err != nil || !o.TimedOut || o.Workspace == nil || o.Workspace.Error == nil || o.Workspace.Error.Code != "SB015" {
		t.Errorf("a run that ran out of time: %+v, %v", o, err)
	}
	// One that fails by itself has ended by itself.
	o, err = b.svc.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "cat f; echo more > g; exit 3"}, Workspace: use}, brig.IO{})
	if err != nil || o.ExitCode != 3 || string(o.Stdout.Head) != "kept\n" || o.Workspace == nil || o.Workspace.Changed != 1 {
		t.Errorf("a run that fails: %+v, %v", o, err)
	}
	// A removal writes back, and refuses where it cannot.
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
	if _, err := b.svc.Kill(b.ctx, "two"); err != nil {
		t.Fatal(err)
	}
	if err := b.svc.Remove(b.ctx, "two"); err != nil {
		t.Error(err)
	}
}
