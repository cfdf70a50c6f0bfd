package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// useGate counts the calls that use a sandbox's instance, and lets one pause or
// resume at a time replace the instance while no call uses it.
type useGate struct {
	mu           sync.Mutex // guards the fields below
	users        int
	passiveCalls map[int]func()       // ends each call that only waits or transfers data
	number       int                  // of the last passive call
	waiting      int                  // calls that wait until moveDone is closed
	changed      chan struct{}        // closed when users or passiveCalls changes; nil if nothing waits
	moveDone     chan struct{}        // closed when the current pause or resume ends; nil if there is none
	lastRecorded map[string]time.Time // when failures of automatic operations were last recorded, by operation
}

// usesOf returns the gate of a sandbox.
func (e *env) usesOf(id brig.ID) (g *useGate) {
	e.sandboxes.update(id, func(s *sandbox) {
		if s.uses == nil {
			s.uses = &useGate{}
		}
		g = s.uses
	})
	return g
}

// dropUses removes the gate of a sandbox that has no instance, unless calls use
// the gate.
func (e *env) dropUses(id brig.ID) {
	e.sandboxes.update(id, func(s *sandbox) {
		if s.instance == nil && s.uses != nil && s.uses.isFree() {
			s.uses = nil
		}
	})
}

// isFree reports whether no call, pause or resume uses the gate or waits for it.
func (g *useGate) isFree() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.users == 0 && g.waiting == 0 && g.moveDone == nil
}

// enter waits until no pause or resume is in progress, and counts one user
// until leave is called.
func (g *useGate) enter(ctx context.Context) (leave func(), err error) {
	if err := g.lockAfterMove(ctx); err != nil {
		return nil, err
	}
	g.users++
	g.mu.Unlock()
	return sync.OnceFunc(g.endUse), nil
}

// lockAfterMove waits until no pause or resume is in progress, and returns with g.mu held. After an
// error, g.mu is not held.
func (g *useGate) lockAfterMove(ctx context.Context) error {
	g.mu.Lock()
	g.waiting++
	for g.moveDone != nil {
		moving := g.moveDone
		g.mu.Unlock()
		var err error
		select {
		case <-moving:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		g.mu.Lock()
		if err != nil {
			g.waiting--
			g.mu.Unlock()
			return err
		}
	}
	g.waiting--
	return nil
}

func (g *useGate) endUse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users--
	g.wakeWaiters()
}

// addPassive declares a call that has entered as passive, until remove is called:
// a pause ends the call with end, instead of waiting for it.
func (g *useGate) addPassive(end func()) (remove func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.passiveCalls == nil {
		g.passiveCalls = map[int]func(){}
	}
	g.number++
	n := g.number
	g.passiveCalls[n] = end
	g.wakeWaiters()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.passiveCalls, n)
		g.wakeWaiters()
	}
}

// wakeWaiters wakes a pause or resume that waits. The caller holds g.mu.
func (g *useGate) wakeWaiters() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// passiveTimeout is how long a pause waits for passive calls to leave after it has ended them.
const passiveTimeout = 5 * time.Second

// beginMove starts a pause or resume. It waits for any other pause or resume, and then up to
// timeout until only passive calls use the instance. It then ends the passive calls. No call can
// enter until end is called. It returns the number of calls that still use the instance, which is 0
// on success.
func (g *useGate) beginMove(ctx context.Context, timeout time.Duration) (end func(), users int, err error) {
	end, err = g.startMove(ctx)
	if err != nil {
		return nil, 0, err
	}
	if users, err = g.endUses(ctx, timeout); err != nil || users > 0 {
		end()
		return nil, users, err
	}
	return end, 0, nil
}

// startMove is the first part of beginMove: no call can enter until end is called, and calls that
// use the instance continue.
func (g *useGate) startMove(ctx context.Context) (end func(), err error) {
	if err := g.lockAfterMove(ctx); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	return g.blockCalls(), nil
}

// endUses is the second part of beginMove: it waits until no call uses the instance, and returns
// the number of calls that still use it.
func (g *useGate) endUses(ctx context.Context, timeout time.Duration) (users int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	users, err = g.awaitUsers(ctx, timeout, func() int { return g.users - len(g.passiveCalls) })
	if err == nil && users <= 0 {
		ends := slices.Collect(maps.Values(g.passiveCalls))
		g.mu.Unlock()
		for _, f := range ends {
			f()
		}
		g.mu.Lock()
		users, err = g.awaitUsers(ctx, passiveTimeout, func() int { return g.users })
	}
	return max(users, 0), err
}

// beginUnused is like beginMove, but neither waits for calls nor ends them: it returns false if any
// call, even a passive call, uses the instance.
func (g *useGate) beginUnused(ctx context.Context) (end func(), ok bool, err error) {
	if err := g.lockAfterMove(ctx); err != nil {
		return nil, false, err
	}
	defer g.mu.Unlock()
	if g.users > 0 {
		return nil, false, nil
	}
	return g.blockCalls(), true, nil
}

// blockCalls prevents calls from entering until end is called. The caller holds g.mu.
func (g *useGate) blockCalls() (end func()) {
	g.moveDone = make(chan struct{})
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.moveDone)
		g.moveDone, g.changed = nil, nil
	})
}

// awaitUsers waits, at most for the duration limit, until the number of users is 0, and returns the
// number. The caller holds g.mu.
func (g *useGate) awaitUsers(ctx context.Context, limit time.Duration, number func() int) (int, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for timedOut := false; number() > 0 && !timedOut; {
		changed := make(chan struct{})
		g.changed = changed
		g.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-timeout.C:
			timedOut = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		g.mu.Lock()
		if err != nil {
			return number(), err
		}
	}
	return number(), nil
}

// endedByPause declares the current call on a sandbox as passive: a pause
// cancels the returned context with errPaused. The caller calls done at the end.
func (e *env) endedByPause(ctx context.Context, id brig.ID) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	remove := e.usesOf(id).addPassive(func() { cancel(errPaused()) })
	return ctx, func() {
		remove()
		cancel(nil)
	}
}

// errPaused returns the error of a passive call that a pause ends.
func errPaused() error {
	return brig.Errorf(brig.Unavailable, "the sandbox was paused").WithHint("call again: that resumes it")
}
