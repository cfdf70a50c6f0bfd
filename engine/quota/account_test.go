package quota

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// While a sandbox is being resumed, another sandbox cannot use the storage of its
// save. In this test, the save uses the whole quota, so no other sandbox may ever
// be admitted.
func TestResumeKeepsStorage(t *testing.T) {
	const save, disk = 10, 5
	a := &Account{now: time.Now, reservations: map[*Reservation]bool{}, unflushed: map[usageKey]brig.UsageTotals{}}
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

// Labels beyond the limit count only in the totals, so that callers cannot fill the disk with
// usage lines. The limit applies to each day separately.
func TestLabelsAreLimited(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	a := New(func() time.Time { return now }, brig.Tenant{Name: "acme"}, brig.LimitRange{}, nil)
	for day := range 2 {
		for i := range maxUsageLabels + 100 {
			p, err := a.ReserveExec(map[string]string{"n": strconv.Itoa(i)})
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
		labels, total := 0, int64(0)
		for _, l := range a.Flush() {
			if l.Label == "n" {
				labels++
			} else {
				total += l.Executions
			}
		}
		if labels != 1000 || total != maxUsageLabels+100 {
			t.Errorf("day %d: %d labels and %d executions", day, labels, total)
		}
		now = now.Add(24 * time.Hour)
	}
}

// One trim runs at a time, and additions during a trim cause exactly one more.
func TestTrimsAreCoalesced(t *testing.T) {
	a := &Account{}
	if !a.BeginTrim() {
		t.Fatal("no trim begins on an idle account")
	}
	for range 2 {
		if a.BeginTrim() {
			t.Error("a second trim begins during the first")
		}
	}
	if !a.EndTrim() {
		t.Error("additions during the trim cause no other trim")
	}
	if a.EndTrim() {
		t.Error("a trim follows without an addition")
	}
	if !a.BeginTrim() {
		t.Error("no trim begins after the last has ended")
	}
}
