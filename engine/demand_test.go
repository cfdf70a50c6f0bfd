package engine

import (
	"testing"
	"time"
)

// The demand is kept for ten minutes, even if the clock is set back or forward.
func TestDemandIsKeptForTenMinutes(t *testing.T) {
	var d demand
	start := time.Unix(1_000_000, 0)
	timeAt := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	want := func(when string, now time.Time, n int) {
		t.Helper()
		if got := d.peak(now); got != n {
			t.Errorf("%s: the peak is %d, want %d", when, got, n)
		}
	}
	want("before anything", timeAt(0), 0)
	for range 5 {
		d.count(timeAt(1))
	}
	d.count(timeAt(3)) // the next span
	want("after a burst", timeAt(3), 5)
	want("much later", timeAt(599), 5)
	want("just within ten minutes", timeAt(599.9), 5)
	want("just after them", timeAt(600), 1)
	want("after both", timeAt(602), 0)

	d.count(timeAt(700))
	d.count(timeAt(690)) // the clock was set back: the request counts for the newest span
	want("a clock that was set back", timeAt(690), 2)
	want("and goes on", timeAt(1299), 2)
	want("until it is over", timeAt(1300), 0)
	d.count(timeAt(100_000))
	want("a leap forward", timeAt(100_000), 1)
	want("and another", timeAt(10_000_000), 0)
}
