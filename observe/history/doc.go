// Package history keeps the usage of sandboxes and the number of each tenant's sandboxes over time,
// in bounded memory. It does not store anything: the history begins with the process.
//
// A series has a point for each sample at first. When a series is full, each pair of its points
// becomes one, and from then on twice as many samples become one point. So a series always covers the
// whole time, with at most maxPoints points. When all series together have too many points, those
// of the sandboxes that have been gone for the longest time are removed, and then each series becomes
// coarser.
package history

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

const (
	// Interval is the minimum time between two samples.
	Interval = 5 * time.Second
	// maxShare limits the share of the time in which the sandboxes are measured.
	maxShare = 20
	// maxPoints is the maximum number of points in one series: those of an hour without coarsening.
	maxPoints = 720
	// maxTotal is the maximum number of points in all series. They take 24 bytes each.
	maxTotal = 1 << 20
	// keepGone is how long the series of a paused or ended sandbox is kept, as in E2B.
	keepGone = 7 * 24 * time.Hour
	// maxGone is the maximum number of series of paused and ended sandboxes.
	maxGone = 10_000
)

// Sample is the usage of a sandbox at a time. Sizes are in bytes, with a resolution of a page.
type Sample struct {
	At                  time.Time
	CPUPercent          float64 // percentage of one CPU since the sample before
	Memory, Cache, Disk int64
}

// Sandbox describes a sandbox.
type Sandbox struct {
	Tenant string
	Limits brig.Limits
}

// Tally is the number of a tenant's sandboxes at a time.
type Tally struct {
	At         time.Time
	Concurrent int
	// StartRate is the number of starts per second since the tally before, and MaxStartRate the
	// highest of the rates that were combined in it.
	StartRate, MaxStartRate float64
}

// Options are the sources of a Recorder.
type Options struct {
	// Live lists the IDs of all sandboxes that run.
	Live func() []string
	// Describe describes a sandbox. It returns nil for one that is not recorded, and NotFound for
	// one that does not exist, or not yet.
	Describe func(ctx context.Context, id string) (*Sandbox, error)
	// Measure measures a sandbox. It returns Unimplemented if the provider cannot.
	Measure func(ctx context.Context, id string) (*brig.Usage, error)
}
