package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/workspace"
)

// newObjectsFixture returns an engine, the store of its workspaces, and a function that
// counts a tenant's objects in this store.
func newObjectsFixture(t *testing.T) (*fixture, *workspace.Store, func(tenant string) int) {
	t.Helper()
	objects, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := workspace.New(objects, nil)
	h := newFixture(t, func(o *engine.Options) { o.Workspaces = store })
	return h, store, func(tenant string) int { return countObjects(t, objects, tenant) }
}

// countObjects returns the number of objects of a tenant.
func countObjects(t *testing.T, o workspace.Objects, tenant string) (n int) {
	t.Helper()
	if err := o.List(t.Context(), "t/"+tenant+"/", func(string) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// await waits until f returns true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// sweptObjects counts the sweeps of the embedded Objects.
type sweptObjects struct {
	workspace.Objects
	sweeps *atomic.Int64
}

func (o sweptObjects) Hold(ctx context.Context, key string, alone bool) (func(), error) {
	if alone {
		o.sweeps.Add(1)
	}
	return o.Objects.Hold(ctx, key, alone)
}

// The contents of failed commits are removed soon, without any further call. There
// are far fewer sweeps than failed commits.
func TestFailedCommitIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sweeps atomic.Int64
		objects, err := workspace.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		store := workspace.New(sweptObjects{objects, &sweeps}, nil)
		h := newFixture(t, func(o *engine.Options) { o.Workspaces = store })
		count := func() int { return countObjects(t, objects, "acme") }
		ctx := withRole(t, brig.Member)
		if _, err := h.CreateWorkspace(ctx, "data"); err != nil {
			t.Fatal(err)
		}
		write := func(box, content string) {
			t.Helper()
			if _, err := h.Files(box).Write(ctx, brig.Path{Name: "f"}, brig.FileWrite{}, strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
		for _, box := range []string{"winner", "loser"} {
			if _, err := h.Create(ctx, brig.Spec{Name: box, TTL: time.Hour, Workspace: brig.WorkspaceUse{Name: "data"}}); err != nil {
				t.Fatal(err)
			}
			write(box, box)
		}
		if _, err := h.CommitWorkspace(ctx, "winner"); err != nil {
			t.Fatal(err)
		}
		before := count()
		for i := range 60 {
			write("loser", fmt.Sprint(i))
			if _, err := h.CommitWorkspace(ctx, "loser"); brig.KindOf(err) != brig.FailedPrecondition {
				t.Fatalf("a conflict: %v", err)
			}
			time.Sleep(10 * time.Second) // of the fake clock
			synctest.Wait()
			if i == 0 && count() != before {
				t.Error("the contents of the first failed commit stay")
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := count(); n != before || store.NeedsSweep("acme") {
			t.Errorf("%d objects, want %d; needs a sweep: %t", n, before, store.NeedsSweep("acme"))
		}
		if n := sweeps.Load(); n > 13 { // about one sweep per minute
			t.Errorf("%d sweeps for 60 conflicts in ten minutes", n)
		}
	})
}

// leaveRemoved leaves the objects of a removed workspace, like a server that was
// killed after the removal.
func leaveRemoved(t *testing.T, s *workspace.Store, tenant string) {
	t.Helper()
	ctx := t.Context()
	w, err := s.Create(ctx, tenant, "data")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Begin(ctx, tenant, "sb1", brig.WorkspaceUse{Name: "data", ID: w.ID}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Add(ctx, brig.Node{Path: "f", Type: brig.RegularFile, Mode: 0o644, Size: 1}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(ctx, tenant, "data"); err != nil {
		t.Fatal(err)
	}
}

// A server sweeps the objects that an earlier server left, even those of tenants
// that no longer exist.
func TestServerSweepsObjectsOfEarlierServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store, count := newObjectsFixture(t)
		for _, tenant := range []string{"acme", "former"} {
			leaveRemoved(t, store, tenant)
			if count(tenant) != 3 {
				t.Fatalf("%s has %d objects, want a version, a manifest and a content", tenant, count(tenant))
			}
		}
		if err := h.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // of the fake clock
		synctest.Wait()
		if count("acme")+count("former") != 0 {
			t.Errorf("%d and %d objects are left", count("acme"), count("former"))
		}
	})
}

// The removal of a tenant sweeps its objects even if an earlier attempt has
// already removed the names of all workspaces.
func TestTenantRemovalSweepsLeftovers(t *testing.T) {
	h, store, count := newObjectsFixture(t)
	leaveRemoved(t, store, "rival")
	if err := h.RemoveTenant(withRole(t, brig.Operator), "rival"); err != nil {
		t.Fatal(err)
	}
	await(t, "objects of the removed tenant stay", func() bool { return count("rival") == 0 })
}
