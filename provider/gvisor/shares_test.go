package gvisor

import (
	"math"
	"testing"
	"time"
)

// TestShareWeights verifies that a share that uses most of the CPUs gets a
// small weight, and that a share that uses little keeps nearly all of its
// weight. Equal shares have equal weights.
func TestShareWeights(t *testing.T) {
	busy := map[*instance]bool{nil: true}
	for name, c := range map[string]struct {
		use  map[string]time.Duration // in each interval
		want map[string]float64
	}{
		"alone":           {map[string]time.Duration{"a": 2 * shareInterval}, map[string]float64{"a": 1}},
		"heavy and light": {map[string]time.Duration{"a": 18 * shareInterval / 10, "b": shareInterval / 5}, map[string]float64{"a": minShareWeight, "b": 0.81}},
		"equal":           {map[string]time.Duration{"a": shareInterval, "b": shareInterval}, map[string]float64{"a": 0.25, "b": 0.25}},
		"idle":            {map[string]time.Duration{"a": 0, "b": 0}, map[string]float64{"a": 1, "b": 1}},
	} {
		s := shares{by: map[string]*share{}}
		use := map[*share]time.Duration{}
		for id, d := range c.use {
			x := &share{own: busy, weight: 1}
			s.by[id], use[x] = x, d
		}
		for range 40 {
			s.setWeights(shareInterval, func(x *share) time.Duration { return use[x] })
		}
		for id, want := range c.want {
			if got := s.by[id].weight; math.Abs(got-want) > 0.1*want {
				t.Errorf("%s: share %s weighs %.3f, want %.3f", name, id, got, want)
			}
		}
	}
}

// TestShareUseOutlivesSandboxes verifies that the use of a share still counts
// after its last sandbox has ended, so that a share does not benefit from
// ending sandboxes. Later the share is removed.
func TestShareUseOutlivesSandboxes(t *testing.T) {
	heavy, light := &share{own: map[*instance]bool{nil: true}, weight: 1}, &share{own: map[*instance]bool{nil: true}, weight: 1}
	s := shares{by: map[string]*share{"heavy": heavy, "light": light}}
	for range 20 {
		s.setWeights(shareInterval, func(x *share) time.Duration {
			if x == heavy {
				return 2 * shareInterval
			}
			return 0
		})
	}
	idle := func(*share) time.Duration { return 0 }
	heavy.own = nil
	s.setWeights(shareInterval, idle)
	if s.by["heavy"] != heavy || heavy.weight > 0.1 {
		t.Errorf("a share without sandboxes is forgotten at once, or weighs %.3f", heavy.weight)
	}
	for range 200 {
		s.setWeights(shareInterval, idle)
	}
	if s.by["heavy"] != nil || s.by["light"] != light {
		t.Errorf("shares: %v", s.by)
	}
}

// TestShareWeightChanges verifies that a weight is written to the kernel only if
// it has changed significantly.
func TestShareWeightChanges(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		set      bool
	}{
		{1, 1, false}, {0.5, 0.5, false}, {1, 0.95, false}, {0.5, 0.54, false},
		{1, 0.5, true}, {0.5, 0.6, true}, {0.95, 1, true}, {minShareWeight, 1, true},
	} {
		if got := changesWeight(c.from, c.to); got != c.set {
			t.Errorf("from %v to %v: %t, want %t", c.from, c.to, got, c.set)
		}
	}
}
