package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// BenchmarkIdle reports the CPU usage of a sandbox with an idle interpreter. It is nearly zero,
// provided that gVisor's kernel sleeps while its guest sleeps.
func BenchmarkIdle(b *testing.B) {
	e, ctx := sandbox(b)
	if _, err := e.RunCode(ctx, "one", brig.Code{Source: "1"}, nil); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second) // wait until the start-up work has ended
	start, before := time.Now(), used(b)
	for b.Loop() {
		time.Sleep(250 * time.Millisecond)
	}
	spent := used(b) - before
	b.ReportMetric(float64(spent)/float64(time.Millisecond)/time.Since(start).Seconds(), "cpu-ms/s")
}

// used returns the CPU time so far of all threads below this process: the shim, gVisor's kernel and
// its helpers.
func used(b *testing.B) time.Duration {
	b.Helper()
	parents := map[int]int{}
	for _, file := range glob(b, "/proc/[0-9]*/stat") {
		line, _ := os.ReadFile(file) // empty if the thread has ended
		_, rest, _ := strings.Cut(string(line), ") ")
		var pid, parent int
		_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d", &pid)
		if f := strings.Fields(rest); len(f) > 1 {
			parent, _ = strconv.Atoi(f[1])
		}
		parents[pid] = parent
	}
	var sum time.Duration
	threads := 0
	for pid := range parents {
		above := parents[pid]
		for above != os.Getpid() && above != 0 {
			above = parents[above]
		}
		if above == 0 {
			continue
		}
		for _, file := range glob(b, fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) {
			var ns int64
			line, _ := os.ReadFile(file)
			if _, err := fmt.Sscan(string(line), &ns); err == nil {
				sum += time.Duration(ns)
				threads++
			}
		}
	}
	if threads == 0 {
		b.Skip("this kernel does not count the time of threads")
	}
	return sum
}

func glob(b *testing.B, pattern string) []string {
	b.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		b.Fatal(err)
	}
	return files
}
