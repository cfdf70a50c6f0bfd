package quota

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
	a := &Account{now: time.Now, reservations: map[*Reservation]bool{}, unflushed: map[usageKey]brig.Spent{}}
	a.tenant.Quota.Storage = save
	a.ReservePaused(save)
	spec := brig.Spec{Limits: brig.Limits{Disk: disk}}
	var work sync.WaitGroup
	var passed atomic.Bool
	end := time.Now().Add(300 * time.Millisecond)
	for range 4 {
		work.Go(func() {
			for time.Now().Before(end) && !passed.Load() {
				if p, err := a.Reserve(spec); err == nil {
					p.Release()
					passed.Store(true)
				}
			}
		})
		work.Go(func() {
			for time.Now().Before(end) && !passed.Load() {
				if _, err := a.ReserveResumed(brig.Spec{Limits: brig.Limits{Disk: save + 1}}, save); err == nil {
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
	if p, err := a.ReserveResumed(spec, save); err != nil {
		t.Errorf("the control: %v", err)
	} else {
		p.Release()
	}
}
