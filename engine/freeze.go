package engine

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// sleeper freezes one sandbox while nobody uses it.
type sleeper struct {
	after time.Duration
	in    brig.Instance

	mu     sync.Mutex // guards the fields below
	users  int
	frozen bool
	timer  *time.Timer
}

// use returns the machine of a sandbox that runs, awake until the returned
// function is called.
func (e *Engine) use(ctx context.Context, rec *brig.Record) (in brig.Instance, rest func(), err error) {
	if in, err = e.running(rec); err != nil {
		return nil, nil, err
	}
	rest, err = e.awake(ctx, rec, in)
	return in, rest, err
}

// occupy is use for something that may take as long as timeout, and renews the
// lease.
func (e *Engine) occupy(ctx context.Context, rec *brig.Record, timeout time.Duration) (in brig.Instance, rest func(), err error) {
	if in, rest, err = e.use(ctx, rec); err != nil {
		return nil, nil, err
	}
	if err = e.renew(ctx, rec, in, timeout); err != nil {
		rest()
		return nil, nil, err
	}
	return in, rest, nil
}

// useContext is use for one of the sandbox's contexts.
func (e *Engine) useContext(ctx context.Context, rec *brig.Record, id string) (in brig.Instance, c *codeContext, rest func(), err error) {
	if in, rest, err = e.use(ctx, rec); err != nil {
		return nil, nil, nil, err
	}
	if c, err = e.context(rec.ID, id); err != nil {
		rest()
		return nil, nil, nil, err
	}
	return in, c, rest, nil
}

// awake makes sure that a sandbox is not frozen until the returned function is
// called. Most sandboxes never are.
func (e *Engine) awake(ctx context.Context, rec *brig.Record, in brig.Instance) (rest func(), err error) {
	if rec.Spec.FreezeAfter == 0 {
		return func() {}, nil
	}
	s := e.sleeperOf(rec, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.frozen {
		if err := in.Thaw(ctx); err != nil {
			return nil, err
		}
		s.frozen = false
	}
	s.users++
	return func() { e.rest(s) }, nil
}

// rest is called when a user has gone; the last one's going starts the clock.
func (e *Engine) rest(s *sleeper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.timer = time.AfterFunc(s.after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users > 0 || s.frozen {
			return
		}
		ctx, cancel := cleanup(e.ctx)
		defer cancel()
		if err := s.in.Freeze(ctx); err != nil {
			e.Log.ErrorContext(ctx, "freeze a sandbox", "err", err)
			return
		}
		s.frozen = true
	})
}

// end stops the clock: there is nothing left to freeze.
func (s *sleeper) end() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++ // for ever
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (e *Engine) sleeperOf(rec *brig.Record, in brig.Instance) *sleeper {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sleepers[rec.ID]
	if s == nil {
		// A server that has just found it does not know whether it is frozen.
		s = &sleeper{after: rec.Spec.FreezeAfter, in: in, frozen: true}
		e.sleepers[rec.ID] = s
	}
	return s
}

// sleep starts the clock of a sandbox that nobody has used yet.
func (e *Engine) sleep(ctx context.Context, rec *brig.Record, in brig.Instance) {
	if rest, err := e.awake(ctx, rec, in); err == nil {
		rest()
	}
}
