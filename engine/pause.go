package engine

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// idlePauser freezes one sandbox after it has been idle for a while, and reports
// when it can be paused.
type idlePauser struct {
	freezeAfter, pauseAfter time.Duration // 0 for never
	in                      brig.Instance
	// wake receives a value after each idle time of pauseAfter.
	wake chan struct{}

	mu     sync.Mutex // guards the fields below
	users  int
	since  time.Time // when the last use ended
	frozen bool
	timers []*time.Timer
}

// keepAwake thaws a frozen sandbox, and keeps it from being frozen or paused as
// idle until releaseUse is called. It does nothing if neither FreezeAfter nor
// PauseAfter is set.
func (e *env) keepAwake(ctx context.Context, rec *brig.Record, in brig.Instance) (releaseUse func(), err error) {
	if rec.Spec.FreezeAfter == 0 && rec.Spec.PauseAfter == 0 {
		return func() {}, nil
	}
	s := e.pauserOf(rec, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopTimers()
	if s.frozen {
		if err := in.Resume(ctx); err != nil {
			return nil, err
		}
		s.frozen = false
	}
	s.users++
	return func() { e.releaseUse(s) }, nil
}

// releaseUse ends one use of a sandbox. When the last use ends, it starts the
// timers.
func (e *env) releaseUse(s *idlePauser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.since = time.Now()
	if s.pauseAfter > 0 {
		s.timers = append(s.timers, time.AfterFunc(s.pauseAfter, func() {
			select {
			case s.wake <- struct{}{}:
			default: // a wake-up is already pending
			}
		}))
	}
	if s.freezeAfter > 0 {
		s.timers = append(s.timers, time.AfterFunc(s.freezeAfter, func() { e.freeze(s) }))
	}
}

// restart starts the timers of a sandbox again, unless it is in use or has ended.
func (e *env) restart(s *idlePauser) {
	s.mu.Lock()
	s.stopTimers()
	s.users++
	s.mu.Unlock()
	e.releaseUse(s)
}

// freeze freezes an idle sandbox.
func (e *env) freeze(s *idlePauser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || s.frozen {
		return
	}
	ctx, cancel := detachedContext(e.ctx)
	defer cancel()
	if err := s.in.Pause(ctx); err != nil {
		e.Log.ErrorContext(ctx, "failed to freeze a sandbox", "err", err)
		return
	}
	s.frozen = true
}

// isIdle reports whether a sandbox has not been used for its PauseAfter.
func (s *idlePauser) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0 && time.Since(s.since) >= s.pauseAfter
}

// stopTimers stops the timers. The caller holds s.mu.
func (s *idlePauser) stopTimers() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

// end stops the timers permanently, after the instance has ended.
func (s *idlePauser) end() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++ // never decremented, so the sandbox is not frozen again
	s.stopTimers()
}

func (e *env) pauserOf(rec *brig.Record, in brig.Instance) (sl *idlePauser) {
	e.sandboxes.update(rec.ID, func(s *sandbox) {
		if s.idlePauser == nil {
			s.idlePauser = &idlePauser{
				freezeAfter: rec.Spec.FreezeAfter, pauseAfter: rec.Spec.PauseAfter, in: in, wake: make(chan struct{}, 1),
				// After a restart, the instance may be frozen.
				frozen: rec.Spec.FreezeAfter > 0,
			}
		}
		sl = s.idlePauser
	})
	return sl
}

// startPauser starts the timers of a new sandbox.
func (l *lifecycle) startPauser(ctx context.Context, rec *brig.Record, in brig.Instance) {
	if releaseUse, err := l.keepAwake(ctx, rec, in); err == nil {
		releaseUse()
	}
}

// minResumedLease is the minimum lease of a resumed sandbox.
const minResumedLease = time.Minute

// leaseAfterPause returns the end of the lease of a paused sandbox that is resumed now: the rest of
// its lease, or a new lease if the sandbox pauses at the end of the lease. It is also a new lease
// if the sandbox pauses when idle and each use renews the lease, because the rest may be shorter
// than the idle time.
func leaseAfterPause(rec *brig.Record, now time.Time, maxLife time.Duration) time.Time {
	minLease := minResumedLease
	if rec.Spec.PauseAtEnd || rec.Spec.PauseAfter != 0 && !rec.Spec.FixedLease {
		minLease = rec.Spec.TTL
	}
	end, last := now.Add(max(rec.Pause.Left, minLease)), endOfLife(rec, now, maxLife)
	if end.After(last) {
		return last
	}
	return end
}

// endOfLife returns when a sandbox reaches its maximum life, assuming no pause from now on. The
// time of earlier pauses does not count.
func endOfLife(rec *brig.Record, now time.Time, maxLife time.Duration) time.Time {
	paused := rec.PausedFor
	if rec.Pause != nil {
		paused += now.Sub(rec.Pause.At)
	}
	return rec.Created.Add(maxLife + paused)
}

// checkLife returns an error if a paused sandbox has reached its maximum life.
func checkLife(rec *brig.Record, now time.Time, maxLife time.Duration) error {
	if endOfLife(rec, now, maxLife).After(now) {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "sandbox %q has run for its maximum life of %s", rec.Spec.Name, maxLife).
		WithHint("fork it: the copy has a life of its own; or ask an operator for a longer max_life")
}
