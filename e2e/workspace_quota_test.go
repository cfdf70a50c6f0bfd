package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestWorkspaceQuota verifies that exactly three of many concurrent commits succeed if the
// tenant's quota has space for three versions. The other commits report the reason, and their
// sandboxes keep the files. Removing a workspace frees its space.
//
//suite:part workspaces
func TestWorkspaceQuota(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t))
	b := sandboxRunner{t, s.client(), t.Context()}
	const boxes, room = 8, 3
	name := func(i int) string { return fmt.Sprintf("w%d", i) }
	use := func(i int) brig.WorkspaceUse { return brig.WorkspaceUse{Name: name(i), Mode: brig.WorkspaceDirect} }
	var making sync.WaitGroup
	for i := range boxes {
		if _, err := b.svc.CreateWorkspace(b.ctx, name(i)); err != nil {
			t.Fatal(err)
		}
		making.Go(func() {
			if _, err := b.svc.Create(b.ctx, brig.Spec{Name: name(i), Workspace: use(i), TTL: 10 * time.Minute}); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	for i := range boxes {
		b.sh(name(i), "echo first > f")
	}
	for i := range boxes {
		if _, err := b.svc.CommitWorkspace(b.ctx, name(i)); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() int64 {
		t.Helper()
		lines, err := b.svc.TenantUsage(b.ctx, brig.UsageQuery{})
		if err != nil || len(lines) != 1 {
			t.Fatalf("%+v, %v", lines, err)
		}
		return lines[0].Stored
	}
	before := stored()
	// Each new version adds one object of a megabyte, and a manifest.
	const size = brig.MiB
	quota := before + room*size + boxes*5000
	if _, err := b.svc.UpdateTenant(b.ctx, brig.Tenant{Name: "default", Quota: brig.Quota{Workspaces: quota}}); err != nil {
		t.Fatal(err)
	}
	for i := range boxes {
		b.sh(name(i), fmt.Sprintf("head -c %d /dev/urandom > large", size))
	}
	var won atomic.Int64
	var lost sync.Map
	var committing sync.WaitGroup
	for i := range boxes {
		committing.Go(func() {
			_, err := b.svc.CommitWorkspace(b.ctx, name(i))
			e := brig.AsError(err)
			switch {
			case err == nil:
				won.Add(1)
			case e.Kind != brig.RateLimited || e.Kind.Code() != "SB008" || e.Field != "quota.workspaces" || e.RetryAfter < time.Second || e.Hint == "":
				t.Errorf("%s: %v", name(i), err)
			default:
				lost.Store(i, true)
			}
		})
	}
	committing.Wait()
	if won.Load() != room {
		t.Errorf("%d commits had room, want %d", won.Load(), room)
	}
	if got := stored(); got > quota || got < before+room*size {
		t.Errorf("%d bytes are stored, of %d", got, quota)
	}
	var one, two string // names of two sandboxes whose commits failed
	lost.Range(func(i, _ any) bool {
		one, two = name(i.(int)), one
		vs, err := b.svc.WorkspaceVersions(b.ctx, name(i.(int)))
		if err != nil || len(vs) != 1 || vs[0].Files != 1 {
			t.Errorf("%s has %+v, %v", name(i.(int)), vs, err)
		}
		return true
	})
	// The server rejects a stop that cannot write back, with a hint on how to
	// proceed.
	_, err := b.svc.Stop(b.ctx, one, 0)
	if e := brig.AsError(err); err == nil || e.Field != "quota.workspaces" || !strings.Contains(e.Hint, "kill the sandbox") {
		t.Errorf("Stop: %v", err)
	}
	// A one-shot run reports the same error after its program has ended.
	o, err := b.svc.Run(b.ctx, brig.Program{
		Command:   []string{"sh", "-c", "echo ran; head -c 1000000 /dev/urandom > other"},
		Workspace: brig.WorkspaceUse{Name: one, Mode: brig.WorkspaceDirect},
	}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != "ran\n" || o.Workspace == nil || o.Workspace.Error == nil || o.Workspace.Error.Code != "SB008" {
		t.Errorf("Run: %+v, %v", o, err)
	}
	// Removing workspaces frees space for the next commit.
	if err := b.svc.RemoveWorkspace(b.ctx, two); err != nil {
		t.Fatal(err)
	}
	for i := range boxes {
		if _, refused := lost.Load(i); !refused {
			if err := b.svc.RemoveWorkspace(b.ctx, name(i)); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if c, err := b.svc.CommitWorkspace(b.ctx, one); err != nil || c.Version.Number != 2 {
		t.Errorf("after a removal: %+v, %v", c, err)
	}
	if got := stored(); got > quota {
		t.Errorf("%d bytes are stored, of %d", got, quota)
	}
}

// TestWorkspaceCapture verifies that only files that a sandbox wrote to captured paths are
// captured, and no files behind symbolic links.
//
//suite:part workspaces
func TestWorkspaceCapture(t *testing.T) {
	e, b, _ := withWorkspaces(t)
	if _, err := e.CreateWorkspace(b.ctx, "data"); err != nil {
		t.Fatal(err)
	}
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect, Capture: []string{"/home/user", "/tmp/out", "/etc", "/none"}}
	b.create(brig.Spec{Name: "box", Workspace: use, Limits: brig.Limits{Disk: brig.GiB}})
	b.sh("box", `mkdir -p ~/.config/app /tmp/out; echo set > ~/.config/app/rc; echo not > /tmp/not; ln -s /etc/passwd ~/passwd; ln -s / ~/root
mkfifo ~/pipe; head -c 300000000 /dev/zero > ~/huge; printf x > "$(printf "$HOME/\377")"; touch -d 2001-01-01 ~/.config/app/old; echo w > w`)
	c, err := e.CommitWorkspace(b.ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range c.Captured {
		got = append(got, f.Path+f.Target)
	}
	want := `[/home/user/.config/app/old /home/user/.config/app/rc /home/user/\xff /home/user/passwd/etc/passwd /home/user/root/]`
	if fmt.Sprint(got) != want {
		t.Errorf("captured %v, want %v", got, want)
	}
	reasons := map[string]string{}
	for _, s := range c.Skipped {
		reasons[s.Path] = s.Reason
	}
	if len(reasons) != 3 || !strings.Contains(reasons["/home/user/huge"], "256MiB") || reasons["/home/user/pipe"] != "it is a pipe" || reasons["/none"] != "nothing is there" {
		t.Errorf("skipped %v", reasons)
	}
	// The next sandbox must not contain the captured files, and its commit must not include the
	// captured files of the first sandbox.
	b.create(brig.Spec{Name: "next", Workspace: use})
	if got := b.sh("next", "cat w; ls -A ~"); got != "w\n" {
		t.Errorf("the next sandbox has %q", got)
	}
	b.sh("next", "echo n > ~/n")
	if c, err = e.CommitWorkspace(b.ctx, "next"); err != nil || len(c.Captured) != 1 || c.Captured[0].Path != "/home/user/n" || c.Version.Number != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	// Files are also captured at the end of a sandbox, and from a one-shot run.
	o, err := e.Run(b.ctx, brig.Program{Command: []string{"sh", "-c", "echo once > ~/once"}, Workspace: use}, brig.IO{})
	if err != nil || o.Workspace == nil || len(o.Workspace.Captured) != 1 || o.Workspace.Captured[0].Path != "/home/user/once" {
		t.Errorf("%+v, %v", o, err)
	}
}
