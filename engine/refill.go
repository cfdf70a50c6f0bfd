package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/interpreter"
)

const (
	// refillInterval is the interval at which the pool checks its classes if
	// there are no claims.
	refillInterval = 5 * time.Second
	// refillDelay is the delay between a claim and the check of the classes.
	// persistentRefillDelay is the delay after a claim for a sandbox that
	// persists. The creator of such a sandbox is about to run a first command,
	// which also has priority.
	refillDelay           = 10 * time.Millisecond
	persistentRefillDelay = 60 * time.Millisecond
	// refillTimeout is the timeout for creating one instance.
	refillTimeout = 60 * time.Second
	// pooledTTL is the lease of a waiting instance. The instance ends earlier if this server ends.
	pooledTTL = 30 * 24 * time.Hour
)

// run keeps the pool filled until ctx is done.
func (p *pool) run(ctx context.Context) {
	if p.Memory == 0 {
		return
	}
	p.updateMinimums(ctx)
	// Half of the CPUs are reserved for callers' requests.
	slots := make(chan struct{}, max(runtime.NumCPU()/2, 1))
	tick := time.NewTicker(refillInterval)
	defer tick.Stop()
	for {
		p.trim()
		for !p.e.capacity.HasWaiters() && p.e.capacity.CheckRoom() == nil {
			s := p.nextToFill()
			if s == nil {
				break
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				p.recordRefill(s, 0, ctx.Err(), nil)
				return
			}
			p.e.background.Go(func() {
				defer func() { <-slots; p.wakeUp() }()
				p.refill(ctx, s)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			p.updateMinimums(ctx)
		}
	}
}

// updateMinimums updates the minimum number of ready instances of each kind. It resolves the image
// names again, because a name may now refer to another image.
func (p *pool) updateMinimums(ctx context.Context) {
	minimums := map[poolKey]int{}
	for _, w := range p.Warm {
		k, err := p.kindOf(ctx, w)
		if err != nil {
			p.e.Log.WarnContext(ctx, "failed to resolve the image of a pool class", "image", w.Image, "err", err)
			continue
		}
		minimums[k] = max(minimums[k], w.Count)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.classes {
		s.minReady = 0
	}
	for k, n := range minimums {
		p.class(k).minReady = n
	}
}

func (p *pool) kindOf(ctx context.Context, w WarmClass) (poolKey, error) {
	limits, err := p.e.LimitRange.Fill(w.Limits)
	if err != nil {
		return poolKey{}, err
	}
	img, err := p.e.images.resolveImage(ctx, w.Image)
	if err != nil {
		return poolKey{}, err
	}
	return poolKey{img.Digest, w.Language, limits}.normalized(), nil
}

// targetSize returns the number of instances of a kind that should be ready. The
// caller holds p.mu.
func (p *pool) targetSize(s *poolClass, now time.Time) int {
	return min(max(s.minReady, s.demand.peak(now)), p.MaxPerClass)
}

// nextToFill returns the class that is furthest below its target, and counts one instance as being
// created. It returns nil if all classes are full or the memory is used up.
func (p *pool) nextToFill() *poolClass {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, used := p.e.Now(), int64(0)
	var worst *poolClass
	gap := 0.0
	for _, s := range p.classes {
		used += int64(len(s.ready)+s.making) * p.InstanceMemory
		want := p.targetSize(s, now)
		present := len(s.ready) + s.making
		if g := float64(want-present) / float64(max(want, 1)); g > gap && now.After(s.retryAt) {
			worst, gap = s, g
		}
	}
	if worst == nil || p.closed || used+p.InstanceMemory > p.Memory {
		return nil
	}
	worst.making++
	return worst
}

// trim ends instances in excess of the target, and deletes classes that have
// not been used in a long time.
func (p *pool) trim() {
	p.mu.Lock()
	now := p.e.Now()
	var out []*pooledInstance
	for k, s := range p.classes {
		if n := len(s.ready) - p.targetSize(s, now); n > 0 {
			out = append(out, s.ready[:n]...) // the oldest
			s.ready = append([]*pooledInstance(nil), s.ready[n:]...)
		}
		if len(s.ready)+s.making+s.minReady == 0 && s.demand.peak(now) == 0 {
			delete(p.classes, k)
		}
	}
	p.mu.Unlock()
	p.endInstances(out)
}

// refill creates one instance for a class.
func (p *pool) refill(ctx context.Context, s *poolClass) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, refillTimeout)
	defer cancel()
	w, err := p.createInstance(ctx, s.poolKey)
	if err == nil && p.isPersistent(s) {
		p.warmUp(ctx, w)
	}
	if err != nil && ctx.Err() == nil {
		p.e.Log.ErrorContext(ctx, "failed to create a pooled sandbox", "image", s.image, "language", s.language, "err", err)
	}
	p.recordRefill(s, time.Since(start), err, w)
}

// recordRefill records the result of a refill. It makes the instance claimable under the same lock,
// so that the instance is always counted exactly once.
func (p *pool) recordRefill(s *poolClass, duration time.Duration, err error, w *pooledInstance) {
	p.mu.Lock()
	s.making--
	if err != nil {
		s.failed++
		s.backoff = min(max(2*s.backoff, time.Second), time.Minute)
		s.retryAt = p.e.Now().Add(s.backoff)
		p.mu.Unlock()
		return
	}
	s.backoff = 0
	if s.refills = append(s.refills, duration); len(s.refills) > 32 {
		s.refills = s.refills[1:]
	}
	discarded := p.closed || p.classes[s.poolKey] != s
	if !discarded {
		s.ready = append(s.ready, w)
	}
	p.mu.Unlock()
	if discarded {
		p.endInstances([]*pooledInstance{w})
		return
	}
	p.watch(s, w)
}

// watch removes an instance that dies while it waits.
func (p *pool) watch(s *poolClass, w *pooledInstance) {
	p.e.background.Go(func() {
		select {
		case <-p.e.ctx.Done():
		case <-w.in.Done():
			// If the instance was claimed before it ended, the claimer handles
			// its end.
			if p.remove(s, w) {
				p.e.Observer.Restarted(p.e.builtinID, "sandbox")
				p.endInstances([]*pooledInstance{w})
				p.wakeUp()
			}
		}
	})
}

// remove removes an instance from its class, and reports whether it was still there.
func (p *pool) remove(s *poolClass, w *pooledInstance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range []*[]*pooledInstance{&s.ready, &s.dead} {
		if i := slices.Index(*list, w); i >= 0 {
			*list = slices.Delete(slices.Clone(*list), i, i+1)
			return true
		}
	}
	return false
}

// createInstance creates an instance without an owner, with a waiting
// interpreter.
func (p *pool) createInstance(ctx context.Context, k poolKey) (_ *pooledInstance, err error) {
	prefix := "sandbox-"
	lang, hasDriver := interpreter.Lookup(k.language)
	if hasDriver {
		prefix = lang.Prefix
	}
	limits := k.limits
	limits.Output = p.e.LimitRange.Default.Output
	spec := brig.Spec{Name: newName(prefix), Image: k.image, Limits: limits, Ephemeral: true, Blank: true, TTL: pooledTTL}
	if img, err := p.e.Options.Images.Resolve(ctx, k.image); err == nil {
		spec.Env = withImage(img, nil) // the same environment as any other interpreter
	}
	w := &pooledInstance{id: newID(), name: spec.Name}
	backend, begin := p.e.providers.builtin(), time.Now()
	w.in, err = backend.Provider.Create(ctx, w.id, spec, p.e.Now().Add(pooledTTL))
	if p.e.reportCreation(backend.ID, brig.MadePool, begin, err); err != nil {
		return nil, err
	}
	failpoint.Hit("pool.made")
	defer func() {
		if err != nil {
			p.e.destroyAsync(ctx, w.id, w.in)
		}
	}()
	p.e.attestOnce(ctx, p.e.providers.builtin(), w.in, k.image, spec)
	if !hasDriver {
		return w, nil
	}
	if w.session, err = p.e.openSession(ctx, w.in, "", "interpreter", lang, brig.Command{}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { w.session.Close() })()
	if err = w.session.Warm(); err != nil {
		w.session.Close()
		return nil, errors.Join(fmt.Errorf("warm up: %w", err), context.Cause(ctx))
	}
	failpoint.Hit("pool.warmed")
	return w, nil
}

// openSession starts an interpreter in an instance. tenant is empty if the instance belongs to no
// tenant.
func (e *env) openSession(ctx context.Context, in brig.Instance, tenant, id string, lang interpreter.Language, cmd brig.Command) (*interpreter.Session, error) {
	if len(lang.Files) > 0 {
		if err := in.Put(ctx, interpreter.Dir, lang.Files); err != nil {
			return nil, err
		}
	}
	cmd.Argv = lang.Argv
	proc, err := in.Start(ctx, id, cmd, brig.Streams{Channel: true})
	if err != nil {
		return nil, err
	}
	e.limitMessages(proc, tenant)
	s, err := interpreter.Open(ctx, proc)
	if err != nil {
		_ = endUnused(ctx, proc) // the error of Open matters more
		return nil, err
	}
	return s, nil
}

// warmUpTimeout is the timeout of a warm-up.
const warmUpTimeout = 5 * time.Second

// isPersistent reports whether the last claim from a class was for a sandbox that persists. The
// next claim is likely to be, too.
func (p *pool) isPersistent(s *poolClass) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.persistent
}

// warmUp runs an empty command in an instance's shell, so that the page cache holds the files of
// commands before the claimer's first command. Instances for one-shots skip the warm-up, because
// their interpreter is already warm. The result is ignored, because an image need not have a shell.
func (p *pool) warmUp(ctx context.Context, w *pooledInstance) {
	_, _ = w.in.Exec(ctx, newExecID(), brig.Command{Shell: ":", Timeout: warmUpTimeout}, brig.IO{Stdout: io.Discard, Stderr: io.Discard})
}
