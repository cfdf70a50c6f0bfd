package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// maxGrace is the maximum grace period for programs to stop.
const maxGrace = 10 * time.Minute

// Stop implements brig.Service.
func (l *lifecycle) Stop(ctx context.Context, name string, grace time.Duration) (*brig.Sandbox, error) {
	return do(ctx, l.gate, brig.OpStop, name, func(v *call) (*brig.Sandbox, error) {
		if grace < 0 || grace > maxGrace {
			return nil, brig.InvalidField("grace_ms", "%v is out of bounds", grace).WithHint("give up to %v", maxGrace)
		}
		return l.stopInstance(ctx, v.rec, grace, brig.Stopped)
	})
}

// Kill implements brig.Service.
func (l *lifecycle) Kill(ctx context.Context, name string) (*brig.Sandbox, error) {
	return do(ctx, l.gate, brig.OpKill, name, func(v *call) (*brig.Sandbox, error) {
		return l.stopInstance(ctx, v.rec, 0, brig.Killed)
	})
}

// stopInstance ends a sandbox's instance and keeps its record. It continues if
// the caller disconnects.
func (l *lifecycle) stopInstance(ctx context.Context, rec *brig.Record, grace time.Duration, reason brig.ExitReason) (*brig.Sandbox, error) {
	leave, rec, err := l.enterLatest(ctx, rec, reason)
	if err != nil {
		return nil, err
	}
	defer leave()
	if rec.State == brig.Ended || rec.State == brig.Paused {
		return &rec.Sandbox, nil
	}
	in := l.instance(rec.ID)
	if in == nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is still being created", rec.Spec.Name).
			WithHint("try again in a moment")
	}
	if err := l.workspaces.writeBackWorkspace(ctx, rec, in, grace, reason); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+cleanupTimeout)
	defer cancel()
	_, err = l.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State == brig.Ended {
			return errAlreadyEnded
		}
		r.State = brig.Stopping
		return nil
	})
	if err != nil && err != errAlreadyEnded {
		return nil, err
	}
	if releaseUse, err := l.keepAwake(ctx, rec, in); err == nil { // paused programs do not receive signals
		defer releaseUse()
	}
	failpoint.Hit("halt.recorded")
	if err := in.Stop(ctx, grace, reason); err != nil {
		return nil, err
	}
	failpoint.Hit("halt.stopped")
	done, err := l.recordEnd(ctx, rec.Tenant, rec.ID, in)
	if err != nil {
		return nil, err
	}
	return &done.Sandbox, nil
}

// enterLatest waits for a pause or resume in progress and returns the updated record, so that the
// caller can end the sandbox. No pause or resume starts until leave is called. If the sandbox is
// paused, enterLatest ends it with the reason why, if a caller requested that. An automatic end
// does not apply to a paused sandbox, because it uses neither its lease nor its tenant's time.
func (l *lifecycle) enterLatest(ctx context.Context, rec *brig.Record, reason brig.ExitReason) (leave func(), _ *brig.Record, err error) {
	if rec.State != brig.Running && rec.State != brig.Paused {
		return func() {}, rec, nil
	}
	for {
		leave, err = l.usesOf(rec.ID).enter(ctx)
		if err != nil {
			return nil, nil, err
		}
		if l.instance(rec.ID) != nil {
			return leave, rec, nil
		}
		now, err := l.Store.Get(ctx, rec.Tenant, string(rec.ID))
		if err != nil || now.State != brig.Paused {
			leave()
			l.dropUses(rec.ID)
			return func() {}, now, err
		}
		leave()
		if reason != brig.Stopped && reason != brig.Killed {
			return func() {}, now, nil
		}
		if rec, err = l.endPaused(ctx, now, reason); err != nil {
			return nil, nil, err
		}
		if rec.State != brig.Paused {
			return func() {}, rec, nil
		}
	}
}

// Remove implements brig.Service.
func (l *lifecycle) Remove(ctx context.Context, name string) error {
	return l.do(ctx, brig.OpRemove, name, func(v *call) error {
		if v.rec.State == brig.Creating {
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q is still being created", v.rec.Spec.Name).
				WithHint("try again in a moment")
		}
		leave, rec, err := l.enterLatest(ctx, v.rec, brig.Killed)
		if err != nil {
			return err
		}
		defer leave()
		v.rec = rec
		if in := l.instance(v.rec.ID); in != nil {
			if err := l.workspaces.writeBackWorkspace(ctx, v.rec, in, 0, brig.Stopped); err != nil {
				return err
			}
		}
		ctx, cancel := detachedContext(ctx)
		defer cancel()
		return l.destroyAndDelete(ctx, v.rec)
	})
}

// destroyAndDelete destroys the instance and then deletes the record. If the
// instance cannot be destroyed, the record persists.
func (l *lifecycle) destroyAndDelete(ctx context.Context, rec *brig.Record) error {
	in := l.instance(rec.ID)
	if in == nil {
		var err error
		in, err = l.providers.recoverInstance(ctx, rec)
		if err != nil && brig.KindOf(err) != brig.NotFound && !errors.Is(err, errNotConfigured) {
			return err
		}
	}
	if in != nil {
		if err := in.Destroy(ctx); err != nil {
			return err
		}
		if rec.State.IsLive() && rec.State != brig.Creating && !rec.Spec.Ephemeral {
			// Record the end of a removed sandbox exactly once.
			if _, err := l.recordEnd(ctx, rec.Tenant, rec.ID, in); err != nil && brig.KindOf(err) != brig.NotFound {
				return err
			}
		}
	}
	failpoint.Hit("remove.destroyed")
	if err := l.Store.Delete(ctx, rec.ID); err != nil {
		return err
	}
	failpoint.Hit("remove.deleted")
	l.unregister(rec.ID)
	return nil
}

// endSandbox ends a sandbox without a caller's request. If its workspace cannot be written back,
// the changes are lost, and the record notes that. It retries until the sandbox has ended or the
// server ends, because nothing else would retry.
func (l *lifecycle) endSandbox(rec *brig.Record, in brig.Instance, grace time.Duration, reason brig.ExitReason) {
	_, err := l.stopInstance(l.ctx, rec, grace, reason)
	if err == nil || l.ctx.Err() != nil {
		return
	}
	ctx, cancel := detachedContext(l.ctx)
	defer cancel()
	if isWrittenBack(rec.Spec) {
		l.Log.ErrorContext(ctx, "failed to save a workspace", "sandbox", rec.ID, "err", err)
		l.workspaces.noteWorkspace(ctx, rec, brig.AsError(err).Message)
	}
	l.stopUntilEnded(rec.ID, in, reason)
}

// watchWorkspace ends a sandbox whose workspace has the mode direct. It ends the sandbox when the
// lease ends, before the instance ends automatically. It also ends the sandbox after the main
// program has ended, because the instance outlives the program. The watch stops when the instance
// is detached: the next attachment has its own watch.
func (l *lifecycle) watchWorkspace(rec *brig.Record, in brig.Instance, detached <-chan struct{}) {
	if !isWrittenBack(rec.Spec) {
		return
	}
	ctx, cancel := context.WithCancel(l.ctx) // of the wait for the main program
	var mainEnded chan struct{}
	if rec.Spec.Command != nil {
		mainEnded = make(chan struct{})
		l.background.Go(func() {
			if in.WaitMain(ctx) == nil {
				close(mainEnded)
			}
		})
	}
	l.background.Go(func() {
		defer cancel()
		for expires := rec.Expires; ; {
			reason := brig.LeaseExpired
			select {
			case <-in.Done():
				return
			case <-detached:
				return
			case <-l.ctx.Done():
				return
			case <-mainEnded:
				reason, mainEnded = brig.Exited, nil
			case <-time.After(max(expires.Sub(l.Now()), 10*time.Millisecond)):
			}
			now, err := l.Store.Get(l.ctx, rec.Tenant, string(rec.ID))
			if err != nil || now.State != brig.Running {
				return
			}
			expires = now.Expires
			if reason == brig.LeaseExpired && l.Now().Before(expires) || reason == brig.Exited && l.workspaces.isEnding(rec.ID) {
				continue // the call that ends all programs also ends the main program
			}
			l.endSandbox(now, in, leaseGrace, reason)
			return
		}
	})
}
