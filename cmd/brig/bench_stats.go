//go:build bench

package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// sample is one measurement. A cpu of 0 means unknown.
type sample struct{ wall, cpu time.Duration }

// samples holds the measurements of one contender, in the order of the rounds.
type samples []sample

func wallOf(s sample) time.Duration { return s.wall }
func cpuOf(s sample) time.Duration  { return s.cpu }

func (s samples) values(of func(sample) time.Duration) []time.Duration {
	var out []time.Duration
	for _, x := range s {
		if d := of(x); d > 0 {
			out = append(out, d)
		}
	}
	return out
}

// median returns the median, or 0 if there are no samples.
func (s samples) median(of func(sample) time.Duration) time.Duration {
	return quantile(s.values(of), 0.5)
}

// ratio returns the median of the ratios to the base samples of the same rounds. It returns 0 if no
// ratio is known.
func (s samples) ratio(base samples, of func(sample) time.Duration) float64 {
	var out []float64
	for i := range min(len(s), len(base)) {
		if a, b := of(s[i]), of(base[i]); a > 0 && b > 0 {
			out = append(out, float64(a)/float64(b))
		}
	}
	return quantile(out, 0.5)
}

// quantile returns the nearest-rank quantile, or 0 for an empty list.
func quantile[T cmp.Ordered](list []T, q float64) T {
	if len(list) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// enoughForP99 is the minimum number of measurements for a meaningful p99.
const enoughForP99 = 50

// millis returns a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// clock returns the duration of f and its error.
func clock(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// usage returns the CPU time that getrusage reports for this process or for the children that it
// has waited for.
func usage(who int) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(who, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
