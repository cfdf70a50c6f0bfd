package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

const (
	// killTimeout is how long the engine tries to kill only the program. Afterwards the engine
	// ends the sandbox, because it guarantees the time limits even if the agent does not cooperate.
	killTimeout = 30 * time.Second
	// killAttempt is the maximum duration of one attempt. A provider repeats its request to a slow
	// agent for up to two minutes.
	killAttempt = 150 * time.Second
	killPause   = 250 * time.Millisecond // between the first two attempts
	// maxKillPause is the maximum pause between two attempts. The pause doubles after each attempt.
	maxKillPause = 30 * time.Second
)

// killProgram kills a program and its children, and retries after errors. It returns false if the
// sandbox must be ended instead, because the program cannot be killed although the provider is
// reachable. It returns true if the server ends, because the next server enforces the time limits.
func (l *lifecycle) killProgram(rec *brig.Record, in brig.Instance, p brig.Process) bool {
	base := l.ctx
	if base.Err() != nil { // make one attempt even while the engine closes
		base = context.WithoutCancel(base)
	}
	_, mayBeUnreachable := l.checkerOf(rec)
	reached := !mayBeUnreachable // before the attempt
	pause := killPause
	for begin := time.Now(); ; {
		err := l.tryKill(base, rec, in, p)
		if err == nil || hasEnded(in) || l.ctx.Err() != nil {
			return true
		}
		l.Log.WarnContext(base, "failed to kill a program; retrying", "sandbox", rec.ID, "err", err)
		if reached && time.Since(begin) >= killTimeout {
			return false
		}
		// An unreachable sandbox may be healthy, and could not be ended either.
		if now := l.isReachable(rec); !now || !reached {
			reached, begin = now, time.Now()
			if now {
				pause = killPause
			}
		}
		pause = l.awaitRetry(in, pause)
	}
}

// awaitRetry waits for the pause between two attempts, and returns the next pause. It returns early
// if the instance or the server ends.
func (l *lifecycle) awaitRetry(in brig.Instance, pause time.Duration) time.Duration {
	select {
	case <-in.Done():
	case <-l.ctx.Done():
	case <-time.After(pause):
	}
	return min(2*pause, maxKillPause)
}

// checkerOf returns the checker of a sandbox's provider, and whether the provider may be
// unreachable. The checker is nil if the provider no longer exists.
func (l *lifecycle) checkerOf(rec *brig.Record) (c brig.Checker, mayBeUnreachable bool) {
	backend, err := l.providers.backendOf(&rec.Sandbox)
	if err != nil {
		return nil, true
	}
	c, mayBeUnreachable = backend.Provider.(brig.Checker)
	return c, mayBeUnreachable
}

// isReachable reports whether the provider of a sandbox can be reached now.
func (l *lifecycle) isReachable(rec *brig.Record) bool {
	c, mayBeUnreachable := l.checkerOf(rec)
	if c == nil {
		return !mayBeUnreachable
	}
	ctx, cancel := context.WithTimeout(l.ctx, killTimeout)
	defer cancel()
	return c.Check(ctx) == nil
}

// tryKill makes one attempt to kill a program. It thaws a frozen sandbox for the attempt.
func (l *lifecycle) tryKill(ctx context.Context, rec *brig.Record, in brig.Instance, p brig.Process) error {
	ctx, cancel := context.WithTimeout(ctx, killAttempt)
	defer cancel()
	releaseUse, err := l.keepAwake(ctx, rec, in)
	if err != nil {
		return err
	}
	defer releaseUse()
	return p.Kill(ctx)
}

// endProgram kills a program and its children, or ends the sandbox if they cannot be killed.
func (l *lifecycle) endProgram(rec *brig.Record, in brig.Instance, p brig.Process) {
	if !l.killProgram(rec, in, p) {
		l.endSandbox(rec, in, 0, brig.AgentLost)
	}
}

// stopUntilEnded ends an instance, and retries after errors until the instance has ended or the
// server ends.
func (l *lifecycle) stopUntilEnded(id brig.ID, in brig.Instance, reason brig.ExitReason) {
	for pause := killPause; ; pause = l.awaitRetry(in, pause) {
		if l.ctx.Err() != nil && pause > killPause {
			return // the next server ends it
		}
		ctx, cancel := detachedContext(l.ctx)
		err := in.Stop(ctx, 0, reason)
		cancel()
		if err == nil || hasEnded(in) {
			return
		}
		l.Log.ErrorContext(l.ctx, "failed to end a sandbox; retrying", "sandbox", id, "err", err)
	}
}

// endProgramLater calls endProgram in the background, for a program that a call could not kill in
// time.
func (l *lifecycle) endProgramLater(rec *brig.Record, in brig.Instance, p brig.Process) {
	l.background.Go(func() { l.endProgram(rec, in, p) })
}
