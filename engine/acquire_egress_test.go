package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// link waits for the network of the only sandbox.
func (h *fixture) link(t *testing.T) *fake.Link {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, id := range h.provider.Machines() {
			if link := h.provider.Link(id); link != nil {
				return link
			}
		}
	}
	t.Fatal("the sandbox has no network")
	return nil
}

// The traffic of a sandbox is charged to its tenant while its template's commands run, also
// if the sandbox then never gets ready.
func TestTrafficOfTemplateCounts(t *testing.T) {
	var net outside
	h := newFixture(t, func(o *engine.Options) {
		net.options(o)
		o.Templates = []brig.Template{{Name: "web", Image: brig.HostImage, Ready: argv("sleep", "60"), ReadyTimeout: 5 * time.Minute}}
	})
	ctx := withRole(t, brig.Operator)
	calls, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := h.Create(calls, brig.Spec{Template: "web", Egress: toNet})
		ended <- err
	}()
	const n = 1000
	net.upload(t, h.link(t), n)
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged while the sandbox gets ready, want %d", got, n)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the create was to fail")
	}
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged after the create, want %d", got, n)
	}
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("there are the machines %v", machines)
	}
}

// noRunning is a store that fails to record running sandboxes, after a call of meanwhile.
type noRunning struct {
	brig.Store
	meanwhile func()
}

func (s *noRunning) Put(ctx context.Context, rec *brig.Record, events ...brig.Event) error {
	if rec.State == brig.Running {
		s.meanwhile()
		return errors.New("the disk is full")
	}
	return s.Store.Put(ctx, rec, events...)
}

// The traffic of a main program is charged, also if the sandbox cannot be recorded.
func TestTrafficOfUnrecordedSandboxCounts(t *testing.T) {
	var net outside
	var h *fixture
	const n = 1000
	h = newFixture(t, func(o *engine.Options) {
		net.options(o)
		o.Store = &noRunning{o.Store, func() { net.upload(t, h.link(t), n) }}
	})
	ctx := withRole(t, brig.Operator)
	if _, err := h.Create(ctx, brig.Spec{Name: "one", Egress: toNet, Command: argv("sleep", "60")}); err == nil {
		t.Error("the create was to fail")
	}
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged, want %d", got, n)
	}
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("there are the machines %v", machines)
	}
}
