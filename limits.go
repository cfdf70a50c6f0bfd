package brig

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

// Limits bound one sandbox. A zero field means its default.
type Limits struct {
	Memory    int64   // bytes of memory, including files in /tmp and /dev/shm
	CPUs      float64 // CPU time per wall time, for example 0.5
	Processes int     // concurrent processes and threads of each user
	OpenFiles int     // open files of each process
	Disk      int64   // bytes that the sandbox may write to its root file system
	Output    int64   // stored bytes of each output stream of each execution
}

// LimitRange is the range of limits that a service allows: the default for a zero field,
// the minimum and the maximum.
type LimitRange struct {
	Default, Min, Max Limits
	// DefaultTTL and MaxTTL bound the lease. MaxLife bounds the total lifetime.
	DefaultTTL, MaxTTL, MaxLife time.Duration
	// MaxPause is the time after which a paused sandbox ends.
	MaxPause time.Duration
	// DefaultTimeout and MaxTimeout bound one execution.
	DefaultTimeout, MaxTimeout time.Duration
}

// Byte sizes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
)

// DefaultLimitRange returns the default range of a service.
func DefaultLimitRange() LimitRange {
	return LimitRange{
		Default: Limits{Memory: 512 * MiB, CPUs: 1, Processes: 256, OpenFiles: 1024, Disk: 1 * GiB, Output: 1 * MiB},
		Min:     Limits{Memory: 32 * MiB, CPUs: 0.05, Processes: 8, OpenFiles: 32, Disk: 1 * MiB, Output: 1 * KiB},
		Max:     Limits{Memory: 64 * GiB, CPUs: 64, Processes: 32768, OpenFiles: 1 << 20, Disk: 1024 * GiB, Output: 16 * MiB},

		DefaultTTL: 5 * time.Minute, MaxTTL: 24 * time.Hour, MaxLife: 7 * 24 * time.Hour, MaxPause: 30 * 24 * time.Hour,
		DefaultTimeout: 30 * time.Second, MaxTimeout: 24 * time.Hour,
	}
}

// Fill returns l with the defaults of b for zero fields, or an error that names
// the first field that is out of range.
func (b LimitRange) Fill(l Limits) (Limits, error) {
	var err error
	fill := func(field string, v, def, min, max float64, format func(float64) string) float64 {
		if v == 0 {
			v = def
		}
		if err == nil && (math.IsNaN(v) || v < min || v > max) {
			err = InvalidField("limits."+field, "%s is out of bounds", format(v)).
				WithHint("give a value from %s to %s, or leave it out for the default %s", format(min), format(max), format(def))
		}
		return v
	}
	bytes := func(v float64) string { // a value beyond int64 prints as its maximum
		if v >= math.MaxInt64 {
			return FormatBytes(math.MaxInt64)
		}
		return FormatBytes(int64(v))
	}
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

// FillTimeout returns d, or the default if d is zero. The error for an invalid
// duration names the field.
func (b LimitRange) FillTimeout(field string, d time.Duration) (time.Duration, error) {
	return fillDuration(field, d, b.DefaultTimeout, b.MaxTimeout)
}

// FillTTL returns d, or the default if d is zero. The error for an invalid duration
// names the field.
func (b LimitRange) FillTTL(field string, d time.Duration) (time.Duration, error) {
	return fillDuration(field, d, b.DefaultTTL, b.MaxTTL)
}

func fillDuration(field string, d, def, max time.Duration) (time.Duration, error) {
	if d == 0 {
		d = def
	}
	if d < time.Millisecond || d > max {
		return d, InvalidField(field, "%v is out of bounds", d).
			WithHint("give a duration from 1ms to %s, or leave it out for the default %s", formatDuration(max), formatDuration(def))
	}
	return d, nil
}

// formatDuration formats a duration without the units that are zero: "24h", "30s".
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// FormatBytes formats n with a binary unit: "512MiB".
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

// Clip shortens a caller's input for a message to at most limit bytes, and appends
// "…" if the input was longer. It never cuts within a character.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// JSONDepth returns the maximum nesting depth of objects and arrays in a JSON
// document. It reads each byte once and accepts invalid JSON.
func JSONDepth(doc []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// Or returns l with the values of other for the limits that are zero.
func (l Limits) Or(other Limits) Limits {
	return Limits{
		Memory: cmp.Or(l.Memory, other.Memory), CPUs: cmp.Or(l.CPUs, other.CPUs), Processes: cmp.Or(l.Processes, other.Processes),
		OpenFiles: cmp.Or(l.OpenFiles, other.OpenFiles), Disk: cmp.Or(l.Disk, other.Disk), Output: cmp.Or(l.Output, other.Output),
	}
}
