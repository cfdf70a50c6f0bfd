package engine

import (
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestRejectionLinesAreLimited checks that the rejected calls of one caller cause a bounded
// number of lines, and that these lines count every call. The rejected calls of other callers
// still have their own lines.
func TestRejectionLinesAreLimited(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	var rs rejections
	whole, counted := 0, 0
	count := func(ev brig.Event) {
		whole++
		if text := ev.Detail[brig.DetailCount]; text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			counted += n
		}
	}
	const calls = 100_000
	noisy := brig.Actor{Tenant: "acme", Key: "k1"}
	for i := range calls {
		now = now.Add(time.Millisecond)
		if ev, ok := rs.addRejection(noisy, brig.Event{Op: "run", Tenant: "acme", Actor: "n" + strconv.Itoa(i)}, now); ok {
			count(ev)
		}
	}
	if maxLines := rejectionBurst + int(calls*time.Millisecond/rejectionInterval) + 1; whole > maxLines || whole < rejectionBurst {
		t.Errorf("%d lines, want %d at most", whole, maxLines)
	}
	for _, a := range []brig.Actor{{Tenant: "acme", Key: "k2"}, {Tenant: "acme", Name: "a person"}, {Tenant: "other", Key: "k1"}} {
		if ev, ok := rs.addRejection(a, brig.Event{Op: "run"}, now); !ok || ev.Detail[brig.DetailCount] != "" {
			t.Errorf("%+v: %+v, %t", a, ev, ok)
		}
	}
	lines := rs.takeCounts(now)
	for _, ev := range lines {
		if ev.Op != "run" || ev.Tenant != "acme" {
			t.Errorf("a line %+v", ev)
		}
		whole-- // this line is not a call
		count(ev)
	}
	if whole+counted != calls {
		t.Errorf("%d lines and %d counted calls, want %d together", whole, counted, calls)
	}
	if more := rs.takeCounts(now); len(more) > 0 || len(rs.by) != 4 {
		t.Errorf("%d more lines, %d callers", len(more), len(rs.by))
	}
	if rs.takeCounts(now.Add(24 * time.Hour)); len(rs.by) != 0 {
		t.Errorf("%d callers are not forgotten", len(rs.by))
	}
}

// TestRejectedCallersAreLimited checks that the callers of a tenant are counted together if there
// are too many of them.
func TestRejectedCallersAreLimited(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	var rs rejections
	lines := 0
	for i := range 3 * maxRejectedCallers {
		if _, ok := rs.addRejection(brig.Actor{Tenant: "acme", Key: "k" + strconv.Itoa(i)}, brig.Event{}, now); ok {
			lines++
		}
	}
	if len(rs.by) > maxRejectedCallers+1 || lines > maxRejectedCallers+rejectionBurst {
		t.Errorf("%d callers, %d lines", len(rs.by), lines)
	}
}
