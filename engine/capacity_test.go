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
)

// More than can be made at once wait, for a while and in bounded number. Who
// is refused is told so, at once or when the while is over, and leaves nothing.
func TestMakingIsBounded(t *testing.T) {
	o := engine.Options{Capacity: engine.Capacity{Making: 2, Waiting: 3, Wait: 5 * time.Second}}
	bubble(t, o, func(t *testing.T, h *house, p *tricky) {
		goOn := make(chan struct{})
		p.play(tricks{create: func(context.Context, brig.ID) error { <-goOn; return nil }})
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
			create(as(t, brig.Member))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(as(t, brig.Member))
		create(ctx)
		for range 2 {
			create(as(t, brig.Member))
		}
		want("while two are made and three wait", map[string]int{})
		create(as(t, brig.Member))
		want("one too many", map[string]int{"rate_limited after 0s": 1})
		cancel()
		want("one went away", map[string]int{"rate_limited after 0s": 1, "canceled after 0s": 1})
		time.Sleep(5 * time.Second)
		want("when the time is over", map[string]int{"rate_limited after 0s": 1, "canceled after 0s": 1, "provider_unavailable after 5s": 2})
		create(as(t, brig.Member))
		synctest.Wait()
		time.Sleep(time.Second)
		close(goOn)
		wg.Wait()
		want("in the end", map[string]int{"rate_limited after 0s": 1, "canceled after 0s": 1, "provider_unavailable after 5s": 2, " after 6s": 2, " after 1s": 1})
		if n, m := h.records(t), len(p.instances()); n != 3 || m != 3 {
			t.Errorf("%d records of %d machines, want 3", n, m)
		}
	})
}

// Where there is no room none is made, for nobody; what waits can be claimed.
func TestNoRoom(t *testing.T) {
	var mu sync.Mutex // guards the field below
	full := false
	o := warm(2)
	o.Capacity.Room = func() error {
		mu.Lock()
		defer mu.Unlock()
		if full {
			return brig.Errorf(brig.Unavailable, "the server's memory is full").WithHint("try again later")
		}
		return nil
	}
	bubble(t, o, func(t *testing.T, h *house, p *tricky) {
		mu.Lock()
		full = true
		mu.Unlock()
		before, _, _ := p.counted()
		for range 2 {
			mustRun(t, h, python("ann"), brig.PoolHit)
		}
		_, err := h.Run(as(t, brig.Member), python("ann"), brig.IO{})
		if brig.KindOf(err) != brig.Unavailable {
			t.Errorf("Run = %v", err)
		}
		pass(time.Minute)
		if after, _, _ := p.counted(); after != before || h.records(t) != 0 {
			t.Errorf("%d machines were made, %d records", after-before, h.records(t))
		}
		mu.Lock()
		full = false
		mu.Unlock()
		pass(time.Minute)
		if s := h.shelf(t); s.Ready < 2 {
			t.Errorf("when there is room again: %+v", s)
		}
	})
}

// Callers who wait come before what is done ahead of time.
func TestRefillWaitsForCallers(t *testing.T) {
	o := warm(1)
	o.Capacity.Making = 1
	bubble(t, o, func(t *testing.T, h *house, p *tricky) {
		goOn := make(chan struct{})
		var mu sync.Mutex // guards the field below
		asked := 0
		p.play(tricks{create: func(context.Context, brig.ID) error {
			mu.Lock()
			asked++
			mu.Unlock()
			<-goOn
			return nil
		}})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := h.Create(as(t, brig.Member), brig.Spec{Limits: brig.Limits{Memory: 256 * brig.MiB}}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // one is made, one waits
		mustRun(t, h, python("ann"), brig.PoolHit)
		pass(20 * time.Second)
		mu.Lock()
		if asked != 1 {
			t.Errorf("%d were made while a caller waited, want 1", asked)
		}
		mu.Unlock()
		close(goOn)
		wg.Wait()
		pass(20 * time.Second)
		for _, s := range h.shelves(t) {
			if s.Ready != s.Target {
				t.Errorf("when nobody waits any more: %+v", s)
			}
		}
	})
}
