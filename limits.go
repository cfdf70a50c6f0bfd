package brig

import (
	"fmt"
	"math"
	"time"
)

// Limits bound one sandbox. A zero field means its default.
type Limits struct {
	Memory    int64   // bytes of memory, files in /tmp and /dev/shm included
	CPUs      float64 // processors' worth of time, for example 0.5
	Processes int     // processes and threads at once, of each user
	OpenFiles int     // open files of each process
	Disk      int64   // bytes that may be written to the root file system
	Output    int64   // bytes kept of each output stream of each execution
}

// Bounds are what a service allows: what a zero limit means, and the least
// and the most that may be asked for.
type Bounds struct {
	Default, Min, Max Limits
	// DefaultTTL and MaxTTL bound the lease; MaxLife bounds the whole life.
	DefaultTTL, MaxTTL, MaxLife time.Duration
	// DefaultTimeout and MaxTimeout bound one execution.
	DefaultTimeout, MaxTimeout time.Duration
}

// Byte sizes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
)

// DefaultBounds are the bounds of a service that was not told otherwise.
func DefaultBounds() Bounds {
	return Bounds{
		Default: Limits{Memory: 512 * MiB, CPUs: 1, Processes: 256, OpenFiles: 1024, Disk: 1 * GiB, Output: 1 * MiB},
		Min:     Limits{Memory: 32 * MiB, CPUs: 0.05, Processes: 8, OpenFiles: 32, Disk: 1 * MiB, Output: 1 * KiB},
		Max:     Limits{Memory: 64 * GiB, CPUs: 64, Processes: 32768, OpenFiles: 1 << 20, Disk: 1024 * GiB, Output: 16 * MiB},

		DefaultTTL: 5 * time.Minute, MaxTTL: 24 * time.Hour, MaxLife: 7 * 24 * time.Hour,
		DefaultTimeout: 30 * time.Second, MaxTimeout: 24 * time.Hour,
	}
}

// Fill returns l with b's default for every zero field, or an error that
// names the first field that is out of bounds.
func (b Bounds) Fill(l Limits) (Limits, error) {
	var err error
	fill := func(field string, v, def, min, max float64, format func(float64) string) float64 {
		if v == 0 {
			v = def
		}
		if err == nil && (math.IsNaN(v) || v < min || v > max) {
			err = InvalidField("limits."+field, "%s is out of bounds", format(v)).
				WithHint("give a value from %s to %s, or leave it out for %s", format(min), format(max), format(def))
		}
		return v
	}
	bytes := func(v float64) string { return FormatBytes(int64(v)) }
	count := func(v float64) string { return fmt.Sprintf("%g", v) }
	i := func(field string, v, def, min, max int64, format func(float64) string) int64 {
		return int64(fill(field, float64(v), float64(def), float64(min), float64(max), format))
	}
	out := Limits{
		Memory:    i("memory", l.Memory, b.Default.Memory, b.Min.Memory, b.Max.Memory, bytes),
		CPUs:      fill("cpus", l.CPUs, b.Default.CPUs, b.Min.CPUs, b.Max.CPUs, count),
		Processes: int(i("processes", int64(l.Processes), int64(b.Default.Processes), int64(b.Min.Processes), int64(b.Max.Processes), count)),
		OpenFiles: int(i("open_files", int64(l.OpenFiles), int64(b.Default.OpenFiles), int64(b.Min.OpenFiles), int64(b.Max.OpenFiles), count)),
		Disk:      i("disk", l.Disk, b.Default.Disk, b.Min.Disk, b.Max.Disk, bytes),
		Output:    i("output", l.Output, b.Default.Output, b.Min.Output, b.Max.Output, bytes),
	}
	return out, err
}

// FillTimeout returns d, or the default for zero, or an error naming field.
func (b Bounds) FillTimeout(field string, d time.Duration) (time.Duration, error) {
	return fillDuration(field, d, b.DefaultTimeout, b.MaxTimeout)
}

// FillTTL returns d, or the default for zero, or an error naming field.
func (b Bounds) FillTTL(field string, d time.Duration) (time.Duration, error) {
	return fillDuration(field, d, b.DefaultTTL, b.MaxTTL)
}

func fillDuration(field string, d, def, max time.Duration) (time.Duration, error) {
	if d == 0 {
		d = def
	}
	if d < time.Millisecond || d > max {
		return d, InvalidField(field, "%v is out of bounds", d).
			WithHint("give a duration from 1ms to %v, or leave it out for %v", max, def)
	}
	return d, nil
}

// FormatBytes writes n as people do: "512MiB".
func FormatBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}
