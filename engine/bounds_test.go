package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/workspace"
)

// pausingStore is a store that pauses after each read, so that other calls can
// write before the reader does.
type pausingStore struct {
	*mem.Store
	secretsRead chan struct{} // receives when a call reads secrets
}

func retryPause() { time.Sleep(20 * time.Millisecond) }

func (p pausingStore) Secrets(ctx context.Context, tenant string) ([]*brig.SealedSecret, error) {
	select {
	case p.secretsRead <- struct{}{}:
	default:
	}
	defer retryPause()
	return p.Store.Secrets(ctx, tenant)
}

func (p pausingStore) Sessions(ctx context.Context, tenant string) ([]*brig.Session, error) {
	defer retryPause()
	return p.Store.Sessions(ctx, tenant)
}

func (p pausingStore) ListKeys(ctx context.Context, tenant string) ([]*brig.Key, error) {
	defer retryPause()
	return p.Store.ListKeys(ctx, tenant)
}

func (p pausingStore) ToolVariables(ctx context.Context, tenant, setup string) ([]*brig.SealedToolVariable, error) {
	defer retryPause()
	return p.Store.ToolVariables(ctx, tenant, setup)
}

func (p pausingStore) GetToolVariable(ctx context.Context, tenant, id string) (*brig.SealedToolVariable, error) {
	defer retryPause()
	return p.Store.GetToolVariable(ctx, tenant, id)
}

// pausingObjects is like pausingStore, for workspaces.
type pausingObjects struct{ workspace.Objects }

func (p pausingObjects) List(ctx context.Context, prefix string, on func(string) error) error {
	defer retryPause()
	return p.Objects.List(ctx, prefix, on)
}

const smallLimit = 5

// newLimited returns an engine with small limits and a pausing store, and the
// context of a caller with a key.
func newLimited(t *testing.T) (h *fixture, ctx context.Context) {
	t.Helper()
	h, ctx, _ = newLimitedStore(t)
	return h, ctx
}

// newLimitedStore is like newLimited, and also returns a channel that receives
// when a call reads secrets.
func newLimitedStore(t *testing.T) (h *fixture, ctx context.Context, reached <-chan struct{}) {
	t.Helper()
	reads := make(chan struct{}, 1)
	engine.MaxRecords(t, smallLimit)
	h = newFixture(t, func(o *engine.Options) {
		objects, err := workspace.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		o.Workspaces = workspace.New(pausingObjects{objects}, nil)
		o.Workspaces.MaxWorkspaces = smallLimit
		o.Store = pausingStore{o.Store.(*mem.Store), reads}
	})
	ctx, _ = h.newKeyHolder(t, withRole(t, brig.Operator), brig.KeySpec{Name: "ci", Role: brig.Admin})
	return h, ctx, reads
}

// If fifty records of one kind are created concurrently, exactly as many as the
// limit allows are created and listed.
func TestRecordLimitsHoldUnderConcurrency(t *testing.T) {
	const atOnce = 50
	type kind struct {
		name   string
		turns  bool // whether the locks of the tenant enforce the limit
		have   int  // records before the test
		create func(h *fixture, ctx context.Context, i int) error
		count  func(h *fixture, ctx context.Context) (int, error)
	}
	setup := func(h *fixture, ctx context.Context) string {
		list, err := h.ToolSetups(ctx)
		if err != nil || len(list) == 0 {
			s, err := h.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolLocal})
			if err != nil {
				return ""
			}
			return s.ID
		}
		return list[0].ID
	}
	kinds := []kind{
		{"secrets", true, 0,
			func(h *fixture, ctx context.Context, i int) error {
				_, err := h.PutSecret(ctx, brig.SecretChange{Name: "s" + strconv.Itoa(i), Value: []byte("value")})
				return err
			},
			func(h *fixture, ctx context.Context) (int, error) { l, err := h.Secrets(ctx); return len(l), err }},
		{"keys", false, 1,
			func(h *fixture, ctx context.Context, i int) error {
				_, err := h.CreateKey(ctx, brig.KeySpec{Name: "k" + strconv.Itoa(i), Role: brig.Viewer})
				return err
			},
			func(h *fixture, ctx context.Context) (int, error) { l, err := h.Keys(ctx, ""); return len(l), err }},
		{"sessions", true, 0,
			func(h *fixture, ctx context.Context, _ int) error { _, err := h.CreateSession(ctx); return err },
			func(h *fixture, ctx context.Context) (int, error) { l, err := h.Sessions(ctx, ""); return len(l), err }},
		{"variables of tools", true, 0,
			func(h *fixture, ctx context.Context, i int) error {
				_, err := h.PutToolVariable(ctx, brig.ToolVariable{Setup: setup(h, ctx), Key: "K" + strconv.Itoa(i), Value: "v"})
				return err
			},
			func(h *fixture, ctx context.Context) (int, error) {
				l, err := h.ToolVariables(ctx, setup(h, ctx))
				return len(l), err
			}},
		{"workspaces", true, 0,
			func(h *fixture, ctx context.Context, i int) error {
				_, err := h.CreateWorkspace(ctx, "w"+strconv.Itoa(i))
				return err
			},
			func(h *fixture, ctx context.Context) (int, error) { l, err := h.Workspaces(ctx); return len(l), err }},
		{"sandboxes", false, 0,
			func(h *fixture, ctx context.Context, _ int) error { _, err := h.Create(ctx, brig.Spec{}); return err },
			func(h *fixture, ctx context.Context) (int, error) {
				p, err := h.List(ctx, brig.ListOptions{})
				if err != nil {
					return 0, err
				}
				return len(p.Sandboxes), nil
			}},
	}
	fire := func(t *testing.T, k kind) (made int, counted int) {
		h, ctx := newLimited(t)
		op := withRole(t, brig.Operator)
		acme, err := h.GetTenant(op, "acme")
		if err != nil {
			t.Fatal(err)
		}
		acme.Quota.Sandboxes = smallLimit
		if _, err := h.UpdateTenant(op, *acme); err != nil {
			t.Fatal(err)
		}
		setup(h, ctx)
		var n atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range atOnce {
			wg.Go(func() {
				<-begin
				if err := k.create(h, ctx, i); err == nil {
					n.Add(1)
				} else if got := brig.KindOf(err); got != brig.FailedPrecondition && got != brig.RateLimited && brig.AsError(err).Field != "key" {
					t.Errorf("a creation is refused as %v", err)
				}
			})
		}
		close(begin)
		wg.Wait()
		counted, err = k.count(h, ctx)
		if err != nil {
			t.Fatal(err)
		}
		return int(n.Load()) + k.have, counted
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if made, counted := fire(t, k); made != smallLimit || counted != smallLimit {
				t.Errorf("%d were made and %d are listed, want %d", made, counted, smallLimit)
			}
		})
		if k.turns {
			t.Run(k.name+" without turns", func(t *testing.T) {
				engine.DisableLocks(t)
				if made, _ := fire(t, k); made <= smallLimit {
					t.Errorf("the control made %d only: the test would not see a bound that is exceeded", made)
				}
			})
		}
	}
}

// Concurrent changes of different fields of one tool variable are all kept.
func TestConcurrentToolVariableChangesAreKept(t *testing.T) {
	change := func(t *testing.T) (kept int) {
		h, ctx := newLimited(t)
		s, err := h.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolLocal})
		if err != nil {
			t.Fatal(err)
		}
		x, err := h.PutToolVariable(ctx, brig.ToolVariable{Setup: s.ID, Key: "K", Value: "old", Description: "old"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			value, text, name := fmt.Sprint("value ", i), fmt.Sprint("text ", i), fmt.Sprint("K", i)
			var wg sync.WaitGroup
			for _, c := range []brig.ToolVariableChange{{Value: &value}, {Description: &text}, {Key: &name}} {
				wg.Go(func() {
					if _, err := h.ChangeToolVariable(ctx, x.ID, c); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			list, err := h.ToolVariables(ctx, s.ID)
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			if got := list[0]; got.Value == value && got.Description == text && got.Key == name {
				kept++
			}
		}
		return kept
	}
	if kept := change(t); kept != 10 {
		t.Errorf("%d of 10 times all changes were kept", kept)
	}
	t.Run("without turns", func(t *testing.T) {
		engine.DisableLocks(t)
		if kept := change(t); kept == 10 {
			t.Error("the control lost no change")
		}
	})
}
