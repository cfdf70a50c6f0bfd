package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

const (
	// killPatience is how long the engine tries to kill a program alone. Then it ends the
	// sandbox, because it guarantees the time limits, whatever the agent does.
	killPatience = 30 * time.Second
	// killAttempt is the maximum duration of one attempt. A provider repeats its request
	// to an agent that is slow, for up to two minutes.
	killAttempt = 150 * time.Second
	killPause   = 250 * time.Millisecond // between two attempts
)

// killProgram kills a program and its children, and tries again if that fails. It
// returns false if the sandbox must end instead. It returns true if the server ends:
// the next one enforces the time limits.
func (l *lifecycle) killProgram(rec *brig.Record, in brig.Instance, p brig.Process) bool {
	base := l.ctx
	if base.Err() != nil { // one attempt also while the engine closes
		base = context.WithoutCancel(base)
	}
	for begin := time.Now(); ; {
		err := l.tryKill(base, rec, in, p)
		if err == nil || hasEnded(in) || l.ctx.Err() != nil {
			return true
		}
		l.Log.WarnContext(base, "failed to kill a program; retrying", "sandbox", rec.ID, "err", err)
		if time.Since(begin) >= killPatience {
			return false
		}
		select {
		case <-in.Done():
		case <-l.ctx.Done():
		case <-time.After(killPause):
		}
	}
}

// tryKill makes one attempt. A frozen sandbox must be awake for it.
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

// endProgram kills a program and its children, or ends the sandbox if it cannot.
func (l *lifecycle) endProgram(rec *brig.Record, in brig.Instance, p brig.Process) {
	if !l.killProgram(rec, in, p) {
		l.endSandbox(rec, in, 0, brig.AgentLost)
	}
}

// stopRun ends the instance of a one-shot run whose time is over, and tries again if that
// fails, until the instance has ended or the server ends.
func (l *lifecycle) stopRun(id brig.ID, in brig.Instance) {
	for {
		ctx, cancel := detachedContext(l.ctx)
		err := in.Stop(ctx, 0, brig.Killed)
		cancel()
		if err == nil || hasEnded(in) {
			return
		}
		l.Log.ErrorContext(l.ctx, "failed to stop a one-shot run; retrying", "sandbox", id, "err", err)
		select {
		case <-in.Done():
			return
		case <-l.ctx.Done():
			return
		case <-time.After(killPause):
		}
	}
}

// endProgramLater is endProgram in the background, for a program that a call could not
// kill in its time.
func (l *lifecycle) endProgramLater(rec *brig.Record, in brig.Instance, p brig.Process) {
	l.background.Go(func() { l.endProgram(rec, in, p) })
}
