package engine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// While a sandbox is being resumed, the space of its save is not free for another
// sandbox. The tenant's storage is full here, so nothing else fits at any time.
func TestResumeKeepsStorage(t *testing.T) {
	const save, disk = 10, 5
	a := &account{now: time.Now, reservations: map[*reservation]bool{}, unflushed: map[usageKey]brig.Spent{}}
	a.tenant.Quota.Storage = save
	a.reservePaused(save)
	spec := brig.Spec{Limits: brig.Limits{Disk: disk}}
	var work sync.WaitGroup
	var passed atomic.Bool
	end := time.Now().Add(300 * time.Millisecond)
	for range 4 {
		work.Go(func() {
			for time.Now().Before(end) && !passed.Load() {
				if p, err := a.reserve(spec); err == nil {
					p.release()
					passed.Store(true)
				}
			}
		})
		work.Go(func() {
			for time.Now().Before(end) && !passed.Load() {
				if _, err := a.reserveResumed(brig.Spec{Limits: brig.Limits{Disk: save + 1}}, save); err == nil {
					t.Error("a sandbox that is too large was resumed")
					return
				}
			}
		})
	}
	work.Wait()
	if passed.Load() {
		t.Error("a sandbox took the space of a save whose sandbox was not resumed")
	}
	if p, err := a.reserveResumed(spec, save); err != nil {
		t.Errorf("the control: %v", err)
	} else {
		p.release()
	}
}
