package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func TestGCPercentFallsWithLiveHeap(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 300}, {32 * brig.MiB, 300}, {64 * brig.MiB, 150}, {96 * brig.MiB, 100}, {192 * brig.MiB, 50}, {10 * brig.GiB, 50},
	} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d bytes: %d, want %d", c.live, got, c.want)
		}
	}
}

// TestPaceGCFollowsLiveHeap checks that a large live heap lowers the percentage, and that a small
// heap restores the default.
func TestPaceGCFollowsLiveHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	paceGC()
	becomes := func(percent int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			runtime.GC()
			now := debug.SetGCPercent(-1)
			debug.SetGCPercent(now)
			if now == percent {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the percentage is %d, want %d", now, percent)
			}
		}
	}
	func() {
		large := make([]byte, 256*brig.MiB)
		becomes(minPercent)
		runtime.KeepAlive(large)
	}()
	becomes(defaultPercent)
}
