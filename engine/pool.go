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

// PoolOptions configures the pool of waiting instances.
type PoolOptions struct {
	// Memory limits the memory of all waiting instances, in bytes. Zero disables the pool.
	Memory int64
	// InstanceMemory is the assumed memory of one instance. Default: 32 MiB.
	InstanceMemory int64
	// Warm lists the kinds that are kept ready from the start. Other kinds are
	// kept ready once they have been requested. Image is a name or a digest.
	Warm []WarmClass
	// MaxPerClass is the maximum number of instances of one kind. Default: 1000.
	MaxPerClass int
}

// WarmClass is a kind of instances, with the number that the pool always keeps
// ready.
type WarmClass struct {
	Image    string
	Language brig.Language
	Limits   brig.Limits
	Count    int
}

// poolKey holds the properties that distinguish instances in the pool. All
// other properties are bound when an instance is claimed.
type poolKey struct {
	image    string // digest
	language brig.Language
	limits   brig.Limits
}

// normalized returns k without the limits that do not affect a waiting
// instance.
func (k poolKey) normalized() poolKey {
	k.limits.Output = 0
	return k
}

// pooledInstance is an instance that has not been claimed.
type pooledInstance struct {
	id      brig.ID
	name    string // its host name
	in      brig.Instance
	session *interpreter.Session // nil for instances without an interpreter
}

// poolClass holds the waiting instances of one kind.
type poolClass struct {
	poolKey
	ready      []*pooledInstance
	dead       []*pooledInstance
	making     int
	minReady   int  // the number of instances to keep ready at all times
	persistent bool // whether the last claim was for a sandbox that persists
	demand     demand

	hits, misses, failed int64
	refills              []time.Duration // the last 32
	retryAt              time.Time       // after a failure
	backoff              time.Duration
}

// pool keeps instances ready. Each is claimed once and never returned.
type pool struct {
	e *machines
	PoolOptions
	wake chan struct{} // signals a claim or a failure, so that run checks the classes

	mu      sync.Mutex // guards the fields below
	classes map[poolKey]*poolClass
	closed  bool
}

func newPool(e *machines, o PoolOptions) *pool {
	if o.InstanceMemory == 0 {
		o.InstanceMemory = 32 * brig.MiB
	}
	if o.MaxPerClass == 0 {
		o.MaxPerClass = 1000
	}
	return &pool{e: e, PoolOptions: o, wake: make(chan struct{}, 1), classes: map[poolKey]*poolClass{}}
}

// claim takes an instance of the first kind that has one. If no instance is ready, claim returns
// nil and counts a miss for the last kind. If the pool is disabled, it returns nil and an empty
// PoolUse.
func (p *pool) claim(persistent bool, kinds ...poolKey) (*pooledInstance, brig.PoolUse) {
	if p.Memory == 0 {
		return nil, ""
	}
	// The caller is about to run a program, which has priority over a refill
	// while other instances wait for the next claim.
	delay := refillDelay
	defer func() { time.AfterFunc(delay, p.wakeUp) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range kinds {
		last := i == len(kinds)-1
		if p.classes[k.normalized()] == nil && !last {
			continue
		}
		s := p.class(k.normalized())
		w := s.pop()
		if w == nil && !last {
			continue
		}
		s.demand.count(p.e.Now())
		s.persistent = persistent
		if persistent && len(s.ready) > 0 {
			delay = persistentRefillDelay
		}
		if w != nil {
			s.hits++
			return w, brig.PoolHit
		}
		s.misses++
	}
	return nil, brig.PoolMiss
}

// hasAny reports whether an instance of one of the kinds appears to be ready.
func (p *pool) hasAny(kinds []poolKey) bool {
	if p.Memory == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range kinds {
		if s := p.classes[k.normalized()]; s != nil && len(s.ready) > 0 {
			return true
		}
	}
	return false
}

// hasInstance reports whether the pool appears to have an instance of any kind.
func (p *pool) hasInstance() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.classes {
		if len(s.ready) > 0 {
			return true
		}
	}
	return false
}

// pop takes the newest live instance, because its memory is the most likely to be cached. It sets
// dead instances aside for their watchers.
func (s *poolClass) pop() *pooledInstance {
	for len(s.ready) > 0 {
		w := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		if !hasEnded(w.in) {
			return w
		}
		s.dead = append(s.dead, w)
	}
	return nil
}

// clear removes all instances from the class, so that their watchers ignore them.
// The caller holds p.mu.
func (s *poolClass) clear() []*pooledInstance {
	out := slices.Concat(s.ready, s.dead)
	s.ready, s.dead = nil, nil
	return out
}

// class returns the class of a kind. The caller holds p.mu.
func (p *pool) class(k poolKey) *poolClass {
	s := p.classes[k]
	if s == nil {
		s = &poolClass{poolKey: k}
		p.classes[k] = s
	}
	return s
}

func (p *pool) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// dropImage ends all waiting instances of an image, so that it can be removed.
func (p *pool) dropImage(digest string) {
	p.mu.Lock()
	var out []*pooledInstance
	maps.DeleteFunc(p.classes, func(k poolKey, s *poolClass) bool {
		if k.image != digest {
			return false
		}
		out = append(out, s.clear()...)
		return true
	})
	p.mu.Unlock()
	p.endInstances(out)
}

// empty ends all waiting instances and closes the pool.
func (p *pool) empty() {
	p.mu.Lock()
	p.closed = true
	var out []*pooledInstance
	for _, s := range p.classes {
		out = append(out, s.clear()...)
	}
	p.mu.Unlock()
	p.endInstances(out)
	p.e.background.Wait()
}

func (p *pool) endInstances(list []*pooledInstance) {
	for _, w := range list {
		if w.session != nil {
			w.session.Close()
		}
		p.e.destroyAsync(context.WithoutCancel(p.e.ctx), w.id, w.in)
	}
}

// status returns the state of the pool, the classes with the most hits first.
func (p *pool) status() []brig.PoolClass {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.e.Now()
	var out []brig.PoolClass
	for _, s := range p.classes {
		out = append(out, brig.PoolClass{
			Provider: p.e.builtinID, Image: s.image, Language: s.language, Limits: s.limits,
			Target: p.targetSize(s, now), Ready: len(s.ready), Making: s.making,
			Hits: s.hits, Misses: s.misses, Failed: s.failed, Refill: median(s.refills),
		})
	}
	slices.SortFunc(out, func(a, b brig.PoolClass) int { return int(b.Hits - a.Hits) })
	return out
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[len(d)/2]
}
