package chaos

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// SoakOptions are the options of Soak.
type SoakOptions struct {
	Server *Server
	For    time.Duration
	Every  time.Duration // between samples; default 5 s
	// Goroutines returns the number of the server's goroutines, or 0 if
	// unknown.
	Goroutines func(ctx context.Context) int
	Say        func(format string, args ...any)
}

// Sample is the state of the server at one moment, and the latencies since the
// last sample.
type Sample struct {
	At time.Duration `json:"-"`
	resourceUsage
	Goroutines int           `json:"goroutines,omitempty"`
	Runs       int           `json:"runs"` // so far
	P50, P99   time.Duration `json:"-"`    // of one-shots
}

// SoakReport is the result of Soak.
type SoakReport struct {
	Counts
	Samples []Sample          `json:"samples"`
	Errors  map[brig.Kind]int `json:"errors"`
	Lost    []string          `json:"lost"`
	// The growth per 1000 runs and the drift of latency, by least squares. The
	// first quarter of the samples is the warm-up and is ignored.
	Memory      float64 `json:"memory_mib_per_1000_runs"`
	Descriptors float64 `json:"descriptors_per_1000_runs"`
	Goroutines  float64 `json:"goroutines_per_1000_runs"`
	Drift50     float64 `json:"p50_drift_percent"` // from the first sample to the last, along the line
	Drift99     float64 `json:"p99_drift_percent"`
	Operations  []Operation
}

// Operation holds the durations of one operation.
type Operation struct {
	Name          string `json:"name"`
	Count         int    `json:"count"`
	P50, P99, Max time.Duration
}

// spans collects durations.
type spans struct {
	mu       sync.Mutex // guards the fields below
	newSpans []time.Duration
	all      map[string][]time.Duration
}

func (s *spans) add(op string, duration time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op == brig.OpRun.Name {
		s.newSpans = append(s.newSpans, duration)
	}
	s.all[op] = append(s.all[op], duration)
}

func (s *spans) take() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.newSpans
	s.newSpans = nil
	return out
}

// Soak applies a steady load and samples the server.
func Soak(ctx context.Context, o SoakOptions) (*SoakReport, error) {
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	if o.Goroutines == nil {
		o.Goroutines = func(context.Context) int { return 0 }
	}
	begin := time.Now()
	durations := &spans{all: map[string][]time.Duration{}}
	l := &load{ledger: newLedger(), tag: strconv.FormatInt(begin.UnixNano()%100000, 10), onSuccess: durations.add}
	l.server.Store(o.Server)
	work, quit := context.WithTimeout(ctx, o.For)
	defer quit()
	l.start(work)
	r := &SoakReport{}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for work.Err() == nil {
		select {
		case <-work.Done():
			continue
		case <-tick.C:
		}
		took := durations.take()
		l.mu.Lock()
		s := Sample{At: time.Since(begin), resourceUsage: resourceUsageOf(o.Server.PID), Runs: l.counts.Runs}
		l.mu.Unlock()
		s.Goroutines, s.P50, s.P99 = o.Goroutines(ctx), Percentile(took, 50), Percentile(took, 99)
		r.Samples = append(r.Samples, s)
		o.Say("%v: %d runs, p50 %v, p99 %v, %s, %d descriptors, %d goroutines", s.At.Round(time.Second), s.Runs,
			s.P50.Round(time.Millisecond), s.P99.Round(time.Millisecond), brig.FormatBytes(s.RSS>>20<<20), s.Descriptors, s.Goroutines)
	}
	l.work.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	l.check(ctx, o.Server.Service)
	if err := removeAll(ctx, o.Server.Service); err != nil {
		return nil, err
	}
	r.Counts, r.Errors, r.Lost = l.counts, l.errors, append(l.lost, l.unexplained...)
	r.fit(durations)
	return r, nil
}

// fit fits lines to the samples.
func (r *SoakReport) fit(durations *spans) {
	var runs, rss, fds, goroutines, minutes, p50, p99 []float64
	for _, s := range r.Samples[len(r.Samples)/4:] {
		runs = append(runs, float64(s.Runs)/1000)
		rss = append(rss, float64(s.RSS)/float64(brig.MiB))
		fds = append(fds, float64(s.Descriptors))
		goroutines = append(goroutines, float64(s.Goroutines))
		minutes = append(minutes, s.At.Minutes())
		p50, p99 = append(p50, s.P50.Seconds()), append(p99, s.P99.Seconds())
	}
	r.Memory, _ = FitLine(runs, rss)
	r.Descriptors, _ = FitLine(runs, fds)
	r.Goroutines, _ = FitLine(runs, goroutines)
	r.Drift50, r.Drift99 = driftPercent(minutes, p50), driftPercent(minutes, p99)
	for name, all := range durations.all {
		r.Operations = append(r.Operations, Operation{name, len(all), Percentile(all, 50), Percentile(all, 99), slices.Max(all)})
	}
	slices.SortFunc(r.Operations, func(a, b Operation) int { return b.Count - a.Count })
}
