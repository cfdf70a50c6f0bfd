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

// Time in the queue is not charged. The instances of 30 short programs are created
// sequentially, in three seconds each. The programs use only a small part of a
// daily quota. The control runs as many longer programs.
func TestQueueTimeIsNotCharged(t *testing.T) {
	for _, quota := range []brig.Quota{{ExecutionTimePerDay: 20 * time.Second}, {CPUTimePerDay: 20 * time.Second}, {MemoryPerDay: 10}} {
		for seconds, all := range map[string]bool{"0": true, "2": false} {
			t.Run(fmt.Sprintf("%+v, programs of %s s", quota.HasTimeLimit(), seconds), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &hookedProvider{}
					h := newFixture(t, func(o *engine.Options) {
						p.Provider = o.Provider
						o.Provider, o.Capacity = p, capacity.Options{MaxCreating: 1, MaxWait: time.Hour}
					})
					setQuota(t, h.store, quota, brig.Ceilings{})
					if err := h.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					p.setHooks(hooks{create: func(context.Context, brig.ID) error { time.Sleep(3 * time.Second); return nil }})
					var mu sync.Mutex // guards ran
					ran := 0
					var calls sync.WaitGroup
					for range 30 {
						calls.Go(func() {
							_, err := h.Run(withRole(t, brig.Member), brig.Program{Command: []string{"sleep", seconds}, Limits: brig.Limits{CPUs: 1, Memory: brig.GiB / 2}}, brig.IO{})
							mu.Lock()
							defer mu.Unlock()
							if err == nil {
								ran++
							} else if brig.KindOf(err) != brig.RateLimited {
								t.Error(err)
							}
						})
					}
					calls.Wait()
					if all != (ran == 30) {
						t.Errorf("%d of 30 ran", ran)
					}
					lines, err := h.TenantUsage(withRole(t, brig.Admin), brig.UsageQuery{})
					if err != nil || all && lines[0].ExecutionTime > time.Second || !all && lines[0].ExecutionTime < 10*time.Second {
						t.Errorf("used: %+v, %v", lines, err)
					}
					h.Close()
				})
			})
		}
	}
}
