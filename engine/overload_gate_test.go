package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
)

// blockCreations makes the provider block all creations until release is
// called.
func blockCreations(p *hookedProvider) (release func()) {
	goOn := make(chan struct{})
	p.setHooks(hooks{create: func(context.Context, brig.ID) error { <-goOn; return nil }})
	return func() { close(goOn) }
}

// runAsync runs a program in a sandbox whose class is not pooled. The channel
// receives the error.
func runAsync(t *testing.T, h *fixture) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	p := newPythonProgram("ann")
	p.Limits.Memory = 256 * brig.MiB
	go func() {
		_, err := h.Run(withRole(t, brig.Operator), p, brig.IO{})
		done <- err
	}()
	synctest.Wait()
	return done
}

// fillQueue fills the slots and the queue of one tenant, and returns the first
// rejection.
func fillQueue(t *testing.T, h *fixture) error {
	t.Helper()
	for range 100 {
		select {
		case err := <-runAsync(t, h):
			return err
		default:
		}
	}
	t.Fatal("100 calls stand in a line of two seconds")
	return nil
}

func wantShed(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is not refused", what)
		return
	}
	apiErr := brig.AsError(err)
	if apiErr.Kind != brig.RateLimited || apiErr.Field != "capacity" || apiErr.RetryAfter < time.Second || apiErr.Hint == "" {
		t.Errorf("%s: %v (field %q, after %v)", what, err, apiErr.Field, apiErr.RetryAfter)
	}
}

// The gate rejects a call that needs a new sandbox before its body is read, if
// the creation could not begin in time. It admits calls of a tenant for which a
// slot is free, and operations that need no new sandbox.
func TestGateShedsLoad(t *testing.T) {
	o := engine.Options{Capacity: capacity.Options{MaxCreating: 2, MaxWait: capacity.ServerMaxWait}}
	rival := func(t *testing.T) context.Context {
		return brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Operator})
	}
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		if err := h.Check(withRole(t, brig.Operator), brig.OpRun, ""); err != nil {
			t.Errorf("the control, an idle server: %v", err)
		}
		release := blockCreations(p)
		wantShed(t, "the call that found the line full", fillQueue(t, h))
		begin := time.Now()
		for _, op := range []brig.Op{brig.OpRun, brig.OpCreate} {
			wantShed(t, op.Name, h.Check(withRole(t, brig.Operator), op, ""))
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("the refusals took %v", waited)
		}
		for _, op := range []brig.Op{brig.OpList, brig.OpCreateWorkspace, brig.OpPutSecret} {
			if err := h.Check(withRole(t, brig.Operator), op, ""); err != nil {
				t.Errorf("%s needs no new sandbox: %v", op.Name, err)
			}
		}
		advance(5 * time.Second) // the creations are slow by now, so any queue is too long
		wantShed(t, "the tenant of the slow creations", h.Check(withRole(t, brig.Operator), brig.OpRun, ""))
		if err := h.Check(rival(t), brig.OpRun, ""); err != nil {
			t.Errorf("another tenant, which has a slot of its own: %v", err)
		}
		release()
		advance(10 * time.Second)
		if err := h.Check(withRole(t, brig.Operator), brig.OpRun, ""); err != nil {
			t.Errorf("when all are made: %v", err)
		}
	})
}

// While the pool has a ready instance, the gate rejects no call, because the call
// may be able to use that instance.
func TestGateAdmitsWhilePoolHasInstances(t *testing.T) {
	o := newPoolOptions(1)
	o.Capacity = capacity.Options{MaxCreating: 2, MaxWait: capacity.ServerMaxWait}
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		release := blockCreations(p)
		defer release()
		wantShed(t, "a call that the pool cannot serve", fillQueue(t, h))
		if err := h.Check(withRole(t, brig.Operator), brig.OpRun, ""); err != nil {
			t.Errorf("with a machine in the pool: %v", err)
		}
		mustRunHit(t, h)
		wantShed(t, "with an empty pool", h.Check(withRole(t, brig.Operator), brig.OpRun, ""))
	})
}

// A call that the gate sheds counts against the tenant's rate limit like any other
// call.
func TestShedCallsCountAgainstRate(t *testing.T) {
	o := engine.Options{Capacity: capacity.Options{MaxCreating: 1, MaxWait: capacity.ServerMaxWait, MaxTenantQueued: 1}}
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		release := blockCreations(p)
		defer release()
		wantShed(t, "the call that found the line full", fillQueue(t, h))
		tenant, err := h.GetTenant(withRole(t, brig.Operator), "acme")
		if err != nil {
			t.Fatal(err)
		}
		tenant.Quota.Rate = 5
		if _, err := h.UpdateTenant(withRole(t, brig.Operator), *tenant); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			err = h.Check(withRole(t, brig.Operator), brig.OpRun, "")
			if brig.AsError(err).Field == "quota.rate" {
				return
			}
			wantShed(t, "within the rate", err)
		}
		t.Error("100 calls at once are within a rate of 5 a second")
	})
}

// The maximum wait begins with the arrival of a call. Work before the call is
// queued, such as screening, shortens its maximum time in the queue.
func TestWaitCountsFromArrival(t *testing.T) {
	for _, c := range []struct {
		name    string
		screens time.Duration
		want    time.Duration
	}{
		{"the control: nothing is done before", 0, 1750 * time.Millisecond},
		// By this time, the first creation has taken half a second, so half a
		// second is reserved for the next creation.
		{"half a second of screening", 500 * time.Millisecond, 1500 * time.Millisecond},
		{"three seconds of screening", 3 * time.Second, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := engine.Options{Capacity: capacity.Options{MaxCreating: 1, MaxWait: capacity.ServerMaxWait}}
			screens := time.Duration(0)
			o.Screen = func(context.Context, brig.Language, string) error { time.Sleep(screens); return nil }
			withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
				release := blockCreations(p)
				first := runAsync(t, h)
				screens = c.screens
				begin := time.Now()
				wantShed(t, c.name, <-runAsync(t, h))
				if waited := time.Since(begin); waited != c.want {
					t.Errorf("refused after %v, want %v", waited, c.want)
				}
				release()
				if err := <-first; err != nil {
					t.Error(err)
				}
				screens = 3 * time.Second
				if err := <-runAsync(t, h); err != nil {
					t.Errorf("a call that is late gets a free slot all the same: %v", err)
				}
			})
		})
	}
}
