package testenv

import (
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// HeapGrowth returns the maximum growth of the heap during f, in bytes. It runs
// the garbage collector frequently, so that garbage is mostly excluded.
// Concurrent tests in the same process affect the result.
func HeapGrowth(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	return HeapGrowthWithGarbage(f)
}

// HeapGrowthWithGarbage returns the maximum growth of the heap during f, in bytes, including
// garbage.
func HeapGrowthWithGarbage(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, uint64(0)
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return peak - min(before, peak)
}

// WriteEndless writes first once and then writes repeated until a write fails or maxBytes bytes
// have been written.
func WriteEndless(w io.Writer, first, repeated string, maxBytes int) {
	n, err := io.WriteString(w, first)
	for block := strings.Repeat(repeated, max(1, 32<<10/len(repeated))); err == nil && n < maxBytes; {
		var more int
		more, err = io.WriteString(w, block)
		n += more
	}
}

// SkipWithRace skips a test in builds with the race detector if the detector would be of no use:
// the test has only one goroutine, or it measures memory or time, which the detector changes.
// The suite also runs the package without the detector (see plain in internal/suite).
func SkipWithRace(t testing.TB, reason string) {
	t.Helper()
	if RaceEnabled {
		t.Skipf("%s: runs without the race detector", reason)
	}
}

// CheckEndlessResponse measures the heap usage of an endless response. The function bounded is the
// program's call, which must fail within bound bytes of heap. The function unbounded is the same
// call without limits. It must use more, because otherwise the measurement is not conclusive. With
// the race detector, CheckEndlessResponse only makes the program's call and does not measure: the
// suite also runs the package without the detector.
func CheckEndlessResponse(t *testing.T, bound uint64, bounded, unbounded func() error) {
	t.Helper()
	var err error
	if RaceEnabled {
		if err = bounded(); err == nil {
			t.Error("an endless response is accepted")
		}
		return
	}
	if n := HeapGrowth(func() { err = bounded() }); n > bound || err == nil {
		t.Errorf("it takes %d MiB, and %v", n>>20, err)
	} else {
		t.Logf("%d MiB: %.200s", n>>20, err)
	}
	if unbounded == nil {
		return
	}
	if n := HeapGrowth(func() { err = unbounded() }); n <= bound {
		t.Errorf("the control takes %d MiB, and %v", n>>20, err)
	} else {
		t.Logf("the control: %d MiB", n>>20)
	}
}
