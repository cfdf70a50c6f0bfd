package observe

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Durations are counted in buckets from a tenth of a millisecond to some hours.
// Each bucket is a twentieth larger than the one before, which bounds the error
// of a quantile.
const (
	growth   = 1.05
	shortest = 1e-4 // seconds
	buckets  = 400
	slots    = 60
)

// window counts recent events by name. It is divided into slots, and drops the
// oldest slot as a whole.
type window struct {
	slot time.Duration

	mu    sync.Mutex // guards the field below
	rings map[string]*ring
}

type ring [slots]cell

// cell holds the events of one slot.
type cell struct {
	slot int64 // number of the slot, since 1970
	sums
	took []uint32 // by duration bucket; nil if there are none
}

// sums are counts of events.
type sums struct {
	attempts, failed int64 // executions and trials, and those that failed because of Brig or the provider
	counted, errored int64 // executions that count, and those that were errors
	good             int64 // those that succeeded
	timed            int64 // those with a duration
	seconds          float64
}

func (s *sums) add(o sums) {
	s.attempts += o.attempts
	s.failed += o.failed
	s.counted += o.counted
	s.errored += o.errored
	s.good += o.good
	s.timed += o.timed
	s.seconds += o.seconds
}

func newWindow(d time.Duration) *window {
	return &window{slot: max(d/slots, time.Millisecond), rings: map[string]*ring{}}
}

// add records an event that occurred at now. If timed is 1, the event has a
// duration.
func (w *window) add(name string, now time.Time, s sums) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rings[name]
	if r == nil {
		r = &ring{}
		w.rings[name] = r
	}
	n := now.UnixNano() / int64(w.slot)
	c := &r[n%slots]
	if c.slot != n {
		clear(c.took)
		*c = cell{slot: n, took: c.took}
	}
	c.add(s)
	if s.timed > 0 {
		if c.took == nil {
			c.took = make([]uint32, buckets)
		}
		c.took[bucketOf(s.seconds)]++
	}
}

func bucketOf(seconds float64) int {
	if seconds <= shortest {
		return 0
	}
	return min(int(math.Log(seconds/shortest)/math.Log(growth)), buckets-1)
}

// pastSums holds the sums of a window for one name.
type pastSums struct {
	sums
	took []uint32
}

// names lists all names in a window, including those without recent events.
func (w *window) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, len(w.rings))
	for name := range w.rings {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// sumBefore returns the sum of the events in the window that ends now.
func (w *window) sumBefore(name string, now time.Time) pastSums {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := pastSums{took: make([]uint32, buckets)}
	r := w.rings[name]
	if r == nil {
		return p
	}
	last := now.UnixNano() / int64(w.slot)
	for i := range r {
		c := &r[i]
		if c.slot <= last-slots || c.slot > last {
			continue
		}
		p.add(c.sums)
		for b, n := range c.took {
			p.took[b] += n
		}
	}
	return p
}

// mean returns the mean duration in seconds.
func (p pastSums) mean() float64 {
	if p.timed == 0 {
		return 0
	}
	return p.seconds / float64(p.timed)
}

// quantile returns the duration in seconds that a share of the events does not
// exceed.
func (p pastSums) quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(p.timed)))
	if p.timed == 0 {
		return 0
	}
	seen := int64(0)
	for b, n := range p.took {
		if seen += int64(n); seen >= rank {
			return shortest * math.Pow(growth, float64(b)+0.5)
		}
	}
	return 0
}

// ratio returns part divided by whole, or 1 if whole is 0.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}
