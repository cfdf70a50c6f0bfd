package gvisor

import (
	"errors"
	"io/fs"
	"math"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig/internal/cgroup"
)

// shares divides the CPUs between the shares of running sandboxes (a share is a
// tenant). Sandboxes that were created for a share are in the share's cgroup.
// Sandboxes from the warm pool remain in their original groups, beside the
// groups of shares, because the kernel does not move memory that is already
// charged to another group. The pooled sandboxes of a share divide the weight
// of one sandbox between them.
//
// With equal weights, a sandbox that starts next to a busy share waits at each
// of its thousands of context switches. Therefore the weight of a share
// decreases with its fraction of the recent use of all shares (weightOf). The
// kernel prefers shares that use little, and two busy shares get equal parts.
type shares struct {
	mu      sync.Mutex
	by      map[string]*share
	of      map[*instance]string
	ticking bool // whether adjust is running
}

// share is one share that has running sandboxes, or had some recently.
type share struct {
	group     string                       // the cgroup of the created sandboxes, or "" if there is none
	own       map[*instance]bool           // created sandboxes
	pooled    map[*instance]*time.Duration // sandboxes from the pool, with their last CPU time reading
	used      time.Duration                // the last CPU time reading of group
	recent    float64                      // CPU seconds used recently, with exponential decay
	onlyShare bool                         // no other share existed at the last adjustment
	weight    float64                      // the current weight, as a fraction of cgroup.NormalWeight
	written   float64                      // the last weight written to group
}

const (
	shareInterval = 250 * time.Millisecond
	// useDecay is the time constant of the decay: past use then counts 1/e.
	useDecay = 2 * time.Second
	// minShareWeight is the minimum fraction of the normal weight. It exceeds
	// the weight of sandboxes that are being created for the pool.
	minShareWeight = 2 * float64(cgroup.LowWeight) / cgroup.NormalWeight
)

// weightOf returns the weight of a share, as a fraction of the normal weight.
// The argument is the share's fraction of the recent use of all shares.
func weightOf(part float64) float64 {
	return max((1-part)*(1-part), minShareWeight)
}

// add registers a running sandbox of a share. A sandbox from the pool that has
// no share gets the normal weight.
func (s *shares) add(i *instance, name string, pooled bool) error {
	if name == "" {
		if pooled {
			return i.setWeight(cgroup.NormalWeight)
		}
		return nil
	}
	group := path.Dir(i.order.Cgroup)
	if !pooled && !strings.HasPrefix(path.Base(group), shareGroup) {
		return nil // the host has no cgroups, or shares are disabled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-i.done:
		return nil // remove has already run
	default:
	}
	if s.by == nil {
		s.by, s.of = map[string]*share{}, map[*instance]string{}
	}
	x := s.by[name]
	if x == nil {
		x = &share{own: map[*instance]bool{}, pooled: map[*instance]*time.Duration{}, weight: 1, written: 1}
		s.by[name] = x
	}
	s.of[i] = name
	if !s.ticking && i.p.cgroups {
		s.ticking = true
		go s.adjust()
	}
	if !pooled {
		x.own[i], x.group = true, group
		if len(x.own) > 1 {
			return nil
		}
		x.used = 0
		if x.weight == 1 && x.written == 1 {
			return nil // even if the group is new: the kernel's default is the normal weight
		}
		return x.weighOwn()
	}
	x.pooled[i] = new(time.Duration)
	return x.weighPooled(i)
}

// remove removes a sandbox that has ended.
func (s *shares) remove(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[s.of[i]]
	if x == nil {
		return
	}
	delete(s.of, i)
	delete(x.own, i)
	if x.pooled[i] != nil {
		delete(x.pooled, i)
		_ = x.weighPooled(nil) // ignore errors: any of these sandboxes may be ending
	}
}

// weighPooled divides the weight of a share between its sandboxes from the
// pool. It returns an error only for the sandbox named one.
func (x *share) weighPooled(one *instance) (err error) {
	for i := range x.pooled {
		each := x.weight * cgroup.NormalWeight / float64(len(x.pooled))
		e := i.setWeight(max(uint64(each), 1))
		if i == one && !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return err
}

// adjust updates the weights of shares periodically, until no sandbox with a
// share is running.
func (s *shares) adjust() {
	last := time.Now()
	for {
		time.Sleep(shareInterval)
		now := time.Now()
		s.mu.Lock()
		s.setWeights(now.Sub(last), (*share).takeUse)
		idle := len(s.by) == 0
		s.ticking = !idle
		s.mu.Unlock()
		if idle {
			return
		}
		last = now
	}
}

// forgotten is the recent use below which a share without sandboxes is removed.
const forgotten = 0.01

// setWeights measures the use of each share since the last call, and sets the
// weights of shares.
func (s *shares) setWeights(since time.Duration, use func(*share) time.Duration) {
	var all float64
	alone := len(s.by) == 1
	for name, x := range s.by {
		switch x.recent *= math.Exp(-since.Seconds() / useDecay.Seconds()); {
		case alone: // without competition, skip the reading
			x.recent = 0
		case x.onlyShare:
			use(x) // start counting from now on
		default:
			x.recent += use(x).Seconds()
		}
		if x.onlyShare = alone; x.recent < forgotten && len(x.own)+len(x.pooled) == 0 {
			delete(s.by, name)
		}
		all += x.recent
	}
	if alone {
		for _, x := range s.by {
			x.setWeight(1)
		}
		return
	}
	for _, x := range s.by {
		part := 0.0
		if all > 0 {
			part = x.recent / all
		}
		x.setWeight(weightOf(part))
	}
}

// takeUse returns the CPU time that the share used since the last call. Groups
// that no longer exist count as zero.
func (x *share) takeUse() (d time.Duration) {
	read := func(g *cgroup.Group, last *time.Duration) {
		now, err := g.CPU()
		if err != nil {
			return
		}
		if *last > 0 && now > *last {
			d += now - *last
		}
		*last = now
	}
	if g, err := x.cgroup(); err == nil && g != nil {
		read(g, &x.used)
	}
	for i, last := range x.pooled {
		if g, err := i.group(); err == nil && g != nil {
			read(g, last)
		}
	}
	return d
}

// cgroup returns the share's own group, or nil if the share has none.
func (x *share) cgroup() (*cgroup.Group, error) {
	if len(x.own) == 0 || x.group == "" {
		return nil, nil
	}
	return cgroup.Open(x.group)
}

// changesWeight reports whether a new weight is worth the writes. Small changes
// are not, except for the return to the normal weight.
func changesWeight(from, to float64) bool {
	return from != to && (to == 1 || math.Abs(to-from) >= 0.1*from)
}

// setWeight sets the weight to a fraction of the normal weight.
func (x *share) setWeight(part float64) {
	if !changesWeight(x.weight, part) {
		return
	}
	x.weight = part
	_ = x.weighOwn() // the share's last sandbox may just have ended
	_ = x.weighPooled(nil)
}

// weighOwn sets the weight of the share's own group.
func (x *share) weighOwn() error {
	g, err := x.cgroup()
	if g == nil || err != nil {
		return err
	}
	err = g.SetWeight(uint64(x.weight * cgroup.NormalWeight))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		x.written = x.weight
	}
	return err
}
