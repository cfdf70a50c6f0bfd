package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/brig-run/brig"
)

// The live heap is usually small, so garbage may reach three times its size: more frequent
// collections would cost more than the memory that they save. Requests and results of many MiB
// temporarily enlarge the heap. While it is large, that much garbage would cost more than the
// collections.
const (
	defaultPercent = 300
	// defaultHeap is the largest live heap that is collected at defaultPercent.
	defaultHeap = 32 * brig.MiB
	minPercent  = 50
)

// gcPercent returns the percentage at which to collect garbage: a constant
// amount of garbage for any size of the live heap, but at least minPercent.
func gcPercent(live uint64) int {
	if live <= uint64(defaultHeap) {
		return defaultPercent
	}
	return max(minPercent, int(uint64(defaultPercent)*uint64(defaultHeap)/live))
}

// paceGC adapts the percentage after each collection, unless GOGC is set.
func paceGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	setGCPercent(defaultPercent)
}

func setGCPercent(percent int) {
	debug.SetGCPercent(percent)
	adjustAfterGC(percent)
}

// adjustAfterGC adapts the percentage after the next collection. The runtime then runs the
// finalizer of an unreachable object.
func adjustAfterGC(percent int) {
	type sentinel [16]byte
	runtime.SetFinalizer(new(sentinel), func(*sentinel) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		next := gcPercent(live[0].Value.Uint64())
		// Avoid small changes, because each change stops the world.
		if d := next - percent; d > percent/10 || -d > percent/10 {
			setGCPercent(next)
		} else {
			adjustAfterGC(percent)
		}
	})
}
