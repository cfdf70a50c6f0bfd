package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// pauseRetryDelay is the delay before a failed pause at the end of a lease is retried.
const pauseRetryDelay = 5 * time.Second

// watchPauseAtEnd pauses a sandbox at the end of its lease, if its spec requests this. The instance
// outlives the lease by an allowance; the sandbox ends if it cannot be paused within this time. The
// watch stops when the instance is detached: after a failed save, the watch of the next attachment
// retries.
func (l *lifecycle) watchPauseAtEnd(rec *brig.Record, in brig.Instance, detached <-chan struct{}) {
	if !rec.Spec.PauseAtEnd {
		return
	}
	l.background.Go(func() {
		for wait, failed := rec.Expires.Sub(l.Now()), false; ; {
			if wait <= 0 {
				wait = pauseRetryDelay
			}
			select {
			case <-in.Done():
				return
			case <-detached:
				return
			case <-l.ctx.Done():
				return
			case <-time.After(wait):
			}
			now, err := l.Store.Get(l.ctx, rec.Tenant, string(rec.ID))
			if err != nil || now.State != brig.Running {
				return
			}
			if wait = now.Expires.Sub(l.Now()); wait > 0 {
				continue // the lease was extended
			}
			if err := l.pauseExpired(l.ctx, now); err != nil && !failed {
				failed = true
				l.Log.WarnContext(l.ctx, "failed to pause a sandbox at the end of its lease; retrying", "sandbox", rec.ID, "err", err)
			}
		}
	})
}

// pauseExpired pauses a sandbox whose lease has ended.
func (p *pauser) pauseExpired(ctx context.Context, rec *brig.Record) error {
	_, err := p.pause(ctx, rec, brig.PauseOptions{FilesOnly: rec.Spec.PauseFilesOnly}, func(r *brig.Record) []brig.Event {
		return []brig.Event{p.observedEvent(r, brig.OpPause.Name, pauseDetail(r, "lease"))}
	})
	return err
}

// endPaused ends a paused sandbox. It removes the save, and keeps the record
// and the logs. It does not change a sandbox that is no longer paused.
func (l *lifecycle) endPaused(ctx context.Context, rec *brig.Record, reason brig.ExitReason) (*brig.Record, error) {
	endMove, users, err := l.usesOf(rec.ID).beginMove(ctx, cleanupTimeout)
	if err != nil {
		return nil, err
	}
	if users > 0 {
		return rec, nil
	}
	defer l.dropUses(rec.ID)
	defer endMove()
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	ended, err := l.updateRecordWith(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State != brig.Paused || reason == brig.LeaseExpired && l.Now().Before(r.Expires) { // a fork has postponed it
			return errAlreadyEnded
		}
		r.State, r.Pause, r.SaveKey, r.Ended = brig.Ended, nil, nil, l.Now().UTC()
		r.Exit = &brig.Exit{Code: 137, Reason: reason, At: r.Ended}
		return nil
	}, func(r *brig.Record) []brig.Event { return []brig.Event{l.endedEvent(r)} })
	if errors.Is(err, errAlreadyEnded) {
		return l.Store.Get(ctx, rec.Tenant, string(rec.ID))
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit("pause.ended")
	l.detachInstance(rec.ID) // releases its reservation
	l.announceEnd(rec.ID)
	l.Observer.SandboxEnded(rec.Provider, reason)
	l.trimLater(ctx, rec.Tenant)
	l.removeStaleSave(ctx, rec)
	return ended, nil
}
