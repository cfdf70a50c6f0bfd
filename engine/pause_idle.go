package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

// idleNoteInterval is the minimum interval between two records of failed pauses of an idle sandbox.
// A guest can make every pause fail, and the engine may try again each second.
const idleNoteInterval = time.Hour

// watchIdle pauses a sandbox each time it has been idle for its PauseAfter. After a failed pause,
// it retries when the sandbox has been idle for this time again. The watch stops when the instance
// is detached: the next attachment starts its own watch.
func (l *lifecycle) watchIdle(rec *brig.Record, in brig.Instance, detached <-chan struct{}) {
	if rec.Spec.PauseAfter == 0 {
		return
	}
	s := l.pauserOf(rec, in)
	l.background.Go(func() {
		for {
			select {
			case <-in.Done():
				return
			case <-detached:
				return
			case <-l.ctx.Done():
				return
			case <-s.wake:
			}
			now, err := l.Store.Get(l.ctx, rec.Tenant, string(rec.ID))
			if err == nil && now.State != brig.Running {
				return
			}
			if err == nil {
				err = l.pauseIdle(l.ctx, now, s)
			}
			if err != nil {
				l.noteNotPaused(rec, err)
			}
			l.restart(s)
		}
	})
}

// noteNotPaused records that an idle sandbox could not be paused.
func (l *lifecycle) noteNotPaused(rec *brig.Record, err error) {
	if l.ctx.Err() != nil || !l.usesOf(rec.ID).shouldRecord(brig.OpPause, idleNoteInterval) {
		return
	}
	ctx, cancel := detachedContext(l.ctx)
	defer cancel()
	l.Log.WarnContext(ctx, "failed to pause an idle sandbox; retrying", "sandbox", rec.ID, "err", err)
	v := callAudit{}
	v.addDetail(brig.DetailWhy, "idle: "+brig.AsError(err).Message)
	event := l.observedEvent(rec, brig.OpPause.Name, v.detail)
	event.Kind = brig.KindOf(err)
	if err := l.Store.Append(ctx, event); err != nil {
		l.Log.ErrorContext(ctx, "failed to record that an idle sandbox was not paused", "sandbox", rec.ID, "err", err)
	}
}

// shouldRecord reports whether a failure of an operation should be recorded, because the last
// record is older than after. A successful pause resets this limit.
func (g *useGate) shouldRecord(op brig.Op, after time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if recordedAt, ok := g.lastRecorded[op.Name]; ok && time.Since(recordedAt) < after {
		return false
	}
	if g.lastRecorded == nil {
		g.lastRecorded = map[string]time.Time{}
	}
	g.lastRecorded[op.Name] = time.Now()
	return true
}

// pauseIdle pauses a sandbox, unless a call has used it within its PauseAfter.
func (p *pauser) pauseIdle(ctx context.Context, rec *brig.Record, s *idlePauser) error {
	if err := checkSavable(rec, "paused", rec.Spec.PauseFilesOnly); err != nil {
		return err
	}
	saver, backend, err := p.providers.saverOf(rec)
	if err != nil {
		return err
	}
	endMove, ok, err := p.usesOf(rec.ID).beginUnused(ctx)
	if err != nil || !ok {
		return err
	}
	defer p.dropUses(rec.ID)
	defer endMove()
	if !s.isIdle() {
		return nil
	}
	_, err = p.pauseUnused(ctx, saver, backend, rec, brig.PauseOptions{FilesOnly: rec.Spec.PauseFilesOnly}, func(r *brig.Record) []brig.Event {
		return []brig.Event{p.observedEvent(r, brig.OpPause.Name, pauseDetail(r, "idle"))}
	})
	return err
}
