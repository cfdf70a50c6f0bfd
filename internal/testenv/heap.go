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
	return HeapPeak(f)
}

// HeapPeak returns the maximum growth of the heap during f, in bytes, including
// garbage.
func HeapPeak(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
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
	return most - min(before, most)
}

// Endless writes first once, and then writes again repeatedly until a write
// fails or most bytes were written.
func Endless(w io.Writer, first, again string, most int) {
	n, err := io.WriteString(w, first)
	for block := strings.Repeat(again, max(1, 32<<10/len(again))); err == nil && n < most; {
		var more int
		more, err = io.WriteString(w, block)
		n += more
	}
}

// PlainOnly skips a test with the race detector if the detector can find nothing in it: the
// test has one goroutine, or it measures memory or time, which the detector changes. The suite
// runs the package without the detector as well (plain in internal/suite).
func PlainOnly(t testing.TB, why string) {
	t.Helper()
	if RaceEnabled {
		t.Skipf("%s: runs without the race detector", why)
	}
}

// Hostile measures the heap usage of an endless response. bounded is the
// program's call, which must fail within bound bytes of heap. open is the same
// call without limits. It must use more, because the measurement is otherwise
// not conclusive. With the race detector, Hostile makes the program's call and
// measures nothing: the suite runs the package without it as well.
func Hostile(t *testing.T, bound uint64, bounded, open func() error) {
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
	if open == nil {
		return
	}
	if n := HeapGrowth(func() { err = open() }); n <= bound {
		t.Errorf("the control takes %d MiB, and %v", n>>20, err)
	} else {
		t.Logf("the control: %d MiB", n>>20)
	}
}
