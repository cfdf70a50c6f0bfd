package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
)

// Creations beyond the concurrency limit wait in a bounded queue, for a limited
// time. Rejected callers receive an error, immediately or after the maximum wait,
// and leave no record.
func TestConcurrentCreationsAreLimited(t *testing.T) {
	o := engine.Options{Capacity: capacity.Options{MaxCreating: 2, MaxQueued: 3, MaxWait: 5 * time.Second}}
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		goOn := make(chan struct{})
		p.setHooks(hooks{create: func(context.Context, brig.ID) error { <-goOn; return nil }})
		var wg sync.WaitGroup
		var mu sync.Mutex // guards the field below
		got := map[string]int{}
		create := func(ctx context.Context) {
			wg.Go(func() {
				start := time.Now()
				_, err := h.Create(ctx, brig.Spec{})
				if err != nil && brig.KindOf(err) != brig.Canceled && brig.AsError(err).Hint == "" {
					t.Errorf("%v says not what to do about it", err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprintf("%s after %v", brig.KindOf(err), time.Since(start))]++
			})
		}
		want := func(when string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		for range 2 {
			create(withRole(t, brig.Member))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(withRole(t, brig.Member))
		create(ctx)
		for range 2 {
			create(withRole(t, brig.Member))
		}
		want("while two are made and three wait", map[string]int{})
		create(withRole(t, brig.Member))
		want("one too many", map[string]int{"rate_limited after 0s": 1})
		cancel()
		want("one went away", map[string]int{"rate_limited after 0s": 1, "canceled after 0s": 1})
		time.Sleep(5 * time.Second)
		want("when the time is over", map[string]int{"rate_limited after 0s": 1, "canceled after 0s": 1, "rate_limited after 4.75s": 2})
		create(withRole(t, brig.Member))
		synctest.Wait()
		time.Sleep(time.Second)
		close(goOn)
		wg.Wait()
		want("in the end", map[string]int{"rate_limited after 0s": 1, "canceled after 0s": 1, "rate_limited after 4.75s": 2, " after 6s": 2, " after 1s": 1})
		if n, m := h.countRecords(t), len(p.instances()); n != 3 || m != 3 {
			t.Errorf("%d records of %d machines, want 3", n, m)
		}
	})
}

// A server without free capacity creates no sandboxes. Sandboxes that are ready in
// the pool can still be claimed.
func TestCreateFailsWithoutCapacity(t *testing.T) {
	var mu sync.Mutex // guards the field below
	full := false
	o := newPoolOptions(2)
	o.Capacity.CheckRoom = func() error {
		mu.Lock()
		defer mu.Unlock()
		if full {
			return brig.Errorf(brig.Unavailable, "the server's memory is full").WithHint("try again later")
		}
		return nil
	}
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		mu.Lock()
		full = true
		mu.Unlock()
		before, _, _ := p.counts()
		for range 2 {
			mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		}
		_, err := h.Run(withRole(t, brig.Member), newPythonProgram("ann"), brig.IO{})
		if brig.KindOf(err) != brig.Unavailable {
			t.Errorf("Run = %v", err)
		}
		advance(time.Minute)
		if after, _, _ := p.counts(); after != before || h.countRecords(t) != 0 {
			t.Errorf("%d machines were made, %d records", after-before, h.countRecords(t))
		}
		mu.Lock()
		full = false
		mu.Unlock()
		advance(time.Minute)
		if s := h.poolClass(t); s.Ready < 2 {
			t.Errorf("when there is room again: %+v", s)
		}
	})
}

// Waiting callers take precedence over the refill of the pool.
func TestRefillWaitsForCallers(t *testing.T) {
	o := newPoolOptions(1)
	o.Capacity.MaxCreating = 1
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		goOn := make(chan struct{})
		var mu sync.Mutex // guards the field below
		creating := 0
		p.setHooks(hooks{create: func(context.Context, brig.ID) error {
			mu.Lock()
			creating++
			mu.Unlock()
			<-goOn
			return nil
		}})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := h.Create(withRole(t, brig.Member), brig.Spec{Limits: brig.Limits{Memory: 256 * brig.MiB}}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // one creation runs, one waits
		mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		advance(20 * time.Second)
		mu.Lock()
		if creating != 1 {
			t.Errorf("%d were made while a caller waited, want 1", creating)
		}
		mu.Unlock()
		close(goOn)
		wg.Wait()
		advance(20 * time.Second)
		for _, s := range h.poolClasses(t) {
			if s.Ready != s.Target {
				t.Errorf("when nobody waits any more: %+v", s)
			}
		}
	})
}
