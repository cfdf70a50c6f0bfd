package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// PoolOptions say what waits to be used.
type PoolOptions struct {
	// Memory bounds what all that waits may use, in bytes. Zero is no pool.
	Memory int64
	// Each is how much one is taken to use. Default 32 MiB.
	Each int64
	// Warm are the kinds that are kept ready from the start; others are when
	// they have been asked for. Image is a name or a digest.
	Warm []Warm
	// Most is the largest number of one kind. Default 1000.
	Most int
}

// Warm asks for some machines of one kind to wait at all times.
type Warm struct {
	Image    string
	Language brig.Language
	Limits   brig.Limits
	Count    int
}

// kind is what machines in the pool are told apart by. Everything else is
// bound when one is claimed.
type kind struct {
	image    string // digest
	language brig.Language
	limits   brig.Limits
}

// shelved returns k without what does not matter while a machine waits.
func (k kind) shelved() kind {
	k.limits.Output = 0
	return k
}

// waiting is a machine that nobody has claimed.
type waiting struct {
	id      brig.ID
	name    string // its host name
	in      brig.Instance
	session *interpreter.Session // nil for machines without an interpreter
}

// shelf holds what waits of one kind.
type shelf struct {
	kind
	ready  []*waiting
	dead   []*waiting
	making int
	least  int  // what is asked for at all times
	stays  bool // whether the last one was for a sandbox that stays
	demand demand

	hits, misses, failed int64
	refills              []time.Duration // the last ones
	pause                time.Time       // after a failure
	backoff              time.Duration
}

// pool keeps machines ready. A machine is claimed once and never comes back.
type pool struct {
	e *Engine
	PoolOptions
	wake chan struct{} // a claim or a failure: look what is missing

	mu      sync.Mutex // guards the fields below
	shelves map[kind]*shelf
	closed  bool
}

func newPool(e *Engine, o PoolOptions) *pool {
	if o.Each == 0 {
		o.Each = 32 * brig.MiB
	}
	if o.Most == 0 {
		o.Most = 1000
	}
	return &pool{e: e, PoolOptions: o, wake: make(chan struct{}, 1), shelves: map[kind]*shelf{}}
}

// claim takes a machine of the first of some kinds that has one, or none: the
// last kind is what was missed then. Without a pool it says neither.
func (p *pool) claim(stays bool, kinds ...kind) (*waiting, brig.PoolUse) {
	if p.Memory == 0 {
		return nil, ""
	}
	// Whoever claims is about to run something, and that comes first, while
	// anything waits for the next.
	delay := refillDelay
	defer func() { time.AfterFunc(delay, p.poke) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range kinds {
		last := i == len(kinds)-1
		if p.shelves[k.shelved()] == nil && !last {
			continue
		}
		s := p.shelf(k.shelved())
		w := s.pop()
		if w == nil && !last {
			continue
		}
		s.demand.count(p.e.Now())
		s.stays = stays
		if stays && len(s.ready) > 0 {
			delay = refillStays
		}
		if w != nil {
			s.hits++
			return w, brig.PoolHit
		}
		s.misses++
	}
	return nil, brig.PoolMiss
}

// pop takes the newest machine: what it has touched is the most likely to be
// in caches. One that has died is put aside for its watcher.
func (s *shelf) pop() *waiting {
	for len(s.ready) > 0 {
		w := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		if !gone(w.in) {
			return w
		}
		s.dead = append(s.dead, w)
	}
	return nil
}

// clear takes everything off the shelf, so that its watchers leave it alone.
// The caller holds p.mu.
func (s *shelf) clear() []*waiting {
	out := slices.Concat(s.ready, s.dead)
	s.ready, s.dead = nil, nil
	return out
}

// shelf returns the shelf of a kind. The caller holds p.mu.
func (p *pool) shelf(k kind) *shelf {
	s := p.shelves[k]
	if s == nil {
		s = &shelf{kind: k}
		p.shelves[k] = s
	}
	return s
}

func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// drop ends everything that waits of an image, so that it can be removed.
func (p *pool) drop(digest string) {
	p.mu.Lock()
	var out []*waiting
	maps.DeleteFunc(p.shelves, func(k kind, s *shelf) bool {
		if k.image != digest {
			return false
		}
		out = append(out, s.clear()...)
		return true
	})
	p.mu.Unlock()
	p.end(out)
}

// empty ends everything that waits, for good.
func (p *pool) empty() {
	p.mu.Lock()
	p.closed = true
	var out []*waiting
	for _, s := range p.shelves {
		out = append(out, s.clear()...)
	}
	p.mu.Unlock()
	p.end(out)
	p.e.work.Wait()
}

func (p *pool) end(list []*waiting) {
	for _, w := range list {
		if w.session != nil {
			w.session.Close()
		}
		p.e.discard(context.WithoutCancel(p.e.ctx), w.id, w.in)
	}
}

// status says what the pool has, the shelves with the most hits first.
func (p *pool) status() []brig.PoolShelf {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.e.Now()
	var out []brig.PoolShelf
	for _, s := range p.shelves {
		out = append(out, brig.PoolShelf{
			Provider: p.e.homeID, Image: s.image, Language: s.language, Limits: s.limits,
			Target: p.target(s, now), Ready: len(s.ready), Making: s.making,
			Hits: s.hits, Misses: s.misses, Failed: s.failed, Refill: middle(s.refills),
		})
	}
	slices.SortFunc(out, func(a, b brig.PoolShelf) int { return int(b.Hits - a.Hits) })
	return out
}

func middle(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

// Pool implements brig.Service.
func (e *Engine) Pool(ctx context.Context) (_ []brig.PoolShelf, err error) {
	v, err := e.enter(ctx, brig.OpPool, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.pool.status(), nil
}
