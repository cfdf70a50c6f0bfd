package history

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Recorder records the usage of sandboxes and the number of each tenant's sandboxes.
type Recorder struct {
	o Options

	mu        sync.Mutex // guards the fields below
	sandboxes map[string]*recorded
	tenants   map[string]*tenant
	// others are the live sandboxes that are not recorded.
	others map[string]bool
	total  int // points in all series
	ticked time.Time
	wait   time.Duration // from the sample before
}

// recorded is the history of a sandbox.
type recorded struct {
	Sandbox
	usage series[usagePoint]
	last  brig.Usage // the measurement before; zero without one
	// unmeasured means that the provider does not measure usage.
	unmeasured bool
	gone       time.Time // since when the sandbox does not run; zero while it does
}

// tenant is the history of a tenant.
type tenant struct {
	tallies             series[tallyPoint]
	concurrent, started uint32 // of the current interval
	idle                bool   // the last tally is 0, and later ones are not recorded
}

// New returns a Recorder. Run starts it.
func New(o Options) *Recorder {
	return &Recorder{o: o, sandboxes: map[string]*recorded{}, tenants: map[string]*tenant{}, others: map[string]bool{}}
}

// Run records until ctx ends. The time between two samples is Interval, or so much longer that
// measuring takes at most 1/maxShare of the time.
func (r *Recorder) Run(ctx context.Context) {
	wait := Interval
	timer := time.NewTimer(wait)
	defer timer.Stop()
	r.mu.Lock()
	r.ticked = time.Now()
	r.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case begin := <-timer.C:
			r.mu.Lock()
			r.wait = wait
			r.mu.Unlock()
			r.Record(ctx)
			took := time.Since(begin)
			wait = max(Interval, maxShare*took)
			timer.Reset(wait - took)
		}
	}
}

// Started counts n started sandboxes of a tenant.
func (r *Recorder) Started(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenant(name).started += uint32(n)
}

func (r *Recorder) tenant(name string) *tenant {
	t := r.tenants[name]
	if t == nil {
		t = &tenant{tallies: series[tallyPoint]{combine: combineTally}, idle: true}
		r.tenants[name] = t
	}
	return t
}

// Record takes one sample of each live sandbox and each tenant.
func (r *Recorder) Record(ctx context.Context) {
	live := r.o.Live()
	for _, id := range live {
		s := r.find(ctx, id)
		if s == nil {
			continue
		}
		if s.unmeasured {
			continue // only this goroutine changes unmeasured
		}
		u, err := r.o.Measure(ctx, id)
		r.mu.Lock()
		switch {
		case brig.KindOf(err) == brig.Unimplemented:
			s.unmeasured = true
		case err == nil:
			r.measured(s, u)
		}
		r.mu.Unlock()
	}
	r.tally(live, time.Now())
}

// find returns the history of a live sandbox, or nil if it is not recorded.
func (r *Recorder) find(ctx context.Context, id string) *recorded {
	r.mu.Lock()
	s, other := r.sandboxes[id], r.others[id]
	r.mu.Unlock()
	if s != nil || other {
		return s
	}
	described, err := r.o.Describe(ctx, id)
	if err != nil {
		return nil // the next sample tries again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if described == nil {
		r.others[id] = true
		return nil
	}
	s = &recorded{Sandbox: *described, usage: series[usagePoint]{combine: combineUsage}}
	r.sandboxes[id] = s
	return s
}

// measured adds a measurement. The CPU time of a sandbox begins again at 0 after a pause, so the
// first measurement after one only begins an interval.
func (r *Recorder) measured(s *recorded, u *brig.Usage) {
	before := s.last
	s.last = *u
	span := u.At.Sub(before.At)
	if before.At.IsZero() || span <= 0 || span > 3*max(Interval, r.wait) || u.CPU < before.CPU {
		return
	}
	r.total += s.usage.add(newUsagePoint(Sample{
		At: u.At, CPUPercent: 100 * float64(u.CPU-before.CPU) / float64(span), Memory: u.Memory, Cache: u.Cache, Disk: u.Disk,
	}))
}

// tally counts the live sandboxes of each tenant, and keeps the history within its bounds.
func (r *Recorder) tally(live []string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := make(map[string]bool, len(live))
	for _, id := range live {
		runs[id] = true
		if s := r.sandboxes[id]; s != nil {
			r.tenant(s.Tenant).concurrent++
			s.gone = time.Time{}
		}
	}
	for id := range r.others {
		if !runs[id] {
			delete(r.others, id)
		}
	}
	for id, s := range r.sandboxes {
		if !runs[id] && s.gone.IsZero() {
			s.gone, s.last = now, brig.Usage{}
		}
	}
	span := max(now.Sub(r.ticked), time.Millisecond)
	r.ticked = now
	for _, t := range r.tenants {
		idle := t.concurrent == 0 && t.started == 0
		if !idle || !t.idle {
			r.total += t.tallies.add(tallyPoint{
				at: now.UnixMilli(), span: uint32(min(span, time.Hour).Milliseconds()), concurrent: t.concurrent, started: t.started,
				maxStartsRate: float32(float64(t.started) / span.Seconds()),
			})
		}
		t.idle, t.concurrent, t.started = idle, 0, 0
	}
	r.limit(now)
}

// Sandbox returns the history of a sandbox, oldest sample first. It returns nil if there is none.
func (r *Recorder) Sandbox(id string) (*Sandbox, []Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, nil
	}
	described, samples := s.Sandbox, make([]Sample, 0, len(s.usage.points))
	for _, p := range s.usage.points {
		samples = append(samples, p.sample())
	}
	return &described, samples
}

// Tenant returns the history of a tenant, oldest tally first.
func (r *Recorder) Tenant(name string) (tallies []Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tenants[name]; t != nil {
		for _, p := range t.tallies.points {
			tallies = append(tallies, p.tally())
		}
	}
	return tallies
}
