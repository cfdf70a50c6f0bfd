package engine

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// leaseHold renews the lease of a sandbox during its uses: calls, connections to ports, watches,
// uploads and sessions. The mutex of the table of sandboxes guards uses.
type leaseHold struct {
	uses    int
	closed  chan struct{} // closed when the last use has ended
	changed chan struct{} // receives a value when a caller has changed the lease
}

const (
	// minRenewal is the minimum time between two renewals.
	minRenewal = 100 * time.Millisecond
	// renewalRetry is the maximum wait after a failed renewal, because the lease may be shorter
	// than the sandbox's TTL.
	renewalRetry = 5 * time.Second
)

// hold begins a use of a sandbox, which lasts until release is called. Only hold renews leases over
// time: every call that uses an instance passes useInstance, which calls hold, and a use that
// outlives its call takes over the release. The maximum life limits every sandbox, so a vanished
// client cannot hold a sandbox forever.
func (l *lifecycle) hold(rec *brig.Record) (release func()) {
	if rec.Spec.Ephemeral || rec.Spec.FixedLease {
		return func() {}
	}
	tenant, id, ttl := rec.Tenant, rec.ID, rec.Spec.TTL
	var h *leaseHold
	first, end := false, rec.Expires
	l.sandboxes.update(id, func(s *sandbox) {
		if first = s.lease == nil; first {
			s.lease = &leaseHold{closed: make(chan struct{}), changed: make(chan struct{}, 1)}
		}
		h = s.lease
		h.uses++
		if !s.leaseEnd.IsZero() && s.leaseEnd.Before(end) {
			end = s.leaseEnd // a caller may have shortened the lease since rec was read
		}
	})
	if first {
		wait := l.renewalWait(ttl, end)
		l.background.Go(func() { l.keepLease(h, tenant, id, ttl, wait) })
	}
	return sync.OnceFunc(func() {
		l.sandboxes.update(id, func(s *sandbox) {
			if h.uses--; h.uses == 0 {
				close(h.closed)
				if s.lease == h {
					s.lease = nil
				}
			}
		})
	})
}

// holdSession makes the session of a call hold the sandbox too.
func (l *lifecycle) holdSession(ctx context.Context, rec *brig.Record) {
	if s := brig.SessionUsesFrom(ctx); s != nil {
		s.Add(rec.ID, func() (release func()) { return l.hold(rec) })
	}
}

// renewalWait returns the time until the next renewal of a lease: a third of it.
func (l *lifecycle) renewalWait(ttl time.Duration, end time.Time) time.Duration {
	return max(min(ttl, end.Sub(l.Now()))/3, minRenewal)
}

// keepLease renews a lease after wait and then after each third of the TTL. It renews the lease
// once more after the last use, unless the use was too short to justify a write.
func (l *lifecycle) keepLease(h *leaseHold, tenant string, id brig.ID, ttl, wait time.Duration) {
	begun, timer := time.Now(), time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-h.closed:
			if time.Since(begun) >= ttl/20 {
				_, _ = l.renewOpen(tenant, id) // renewOpen logs errors
			}
			return
		case <-h.changed:
			if rec, err := l.Store.Get(l.ctx, tenant, string(id)); err == nil {
				wait = l.renewalWait(ttl, rec.Expires)
			} else {
				wait = min(wait, renewalRetry)
			}
			timer.Reset(wait)
		case <-timer.C:
			usable, err := l.renewOpen(tenant, id)
			switch {
			case !usable:
				l.sandboxes.update(id, func(s *sandbox) {
					if s.lease == h {
						s.lease = nil // the sandbox has ended
					}
				})
				return
			case err != nil:
				wait = min(wait, renewalRetry)
			default:
				wait = max(ttl/3, minRenewal)
			}
			timer.Reset(wait)
		}
	}
}

// renewOpen renews the lease of a sandbox from its current record, and reports whether the sandbox
// can still be used. It waits for a pause or resume in progress, and leaves the lease of a paused
// sandbox unchanged. The caller retries after an error.
func (l *lifecycle) renewOpen(tenant string, id brig.ID) (usable bool, err error) {
	leave, err := l.usesOf(id).enter(l.ctx)
	if err != nil {
		return false, nil // the engine ends
	}
	defer l.dropUses(id)
	defer leave()
	ctx, cancel := context.WithTimeout(l.ctx, cleanupTimeout)
	defer cancel()
	rec, err := l.Store.Get(ctx, tenant, string(id))
	if err == nil && !rec.State.IsActive() || brig.KindOf(err) == brig.NotFound {
		return false, nil
	}
	in := l.instance(id)
	if err == nil && rec.State == brig.Running && in != nil {
		err = l.renew(ctx, rec, in, 0)
	}
	if err == nil || l.ctx.Err() != nil || in != nil && hasEnded(in) {
		return true, nil
	}
	l.Log.WarnContext(ctx, "failed to renew the lease of a sandbox in use; retrying", "sandbox", id, "err", err)
	return true, err
}

// updateRenewals adapts the renewals of a sandbox, including those of later uses, after a caller
// has changed the lease.
func (l *lifecycle) updateRenewals(rec *brig.Record) {
	l.sandboxes.update(rec.ID, func(s *sandbox) {
		if s.instance != nil {
			s.leaseEnd = rec.Expires
		}
		if s.lease == nil {
			return
		}
		select {
		case s.lease.changed <- struct{}{}:
		default:
		}
	})
}

// endWatch reports the permanent end of a sandbox to its holders. The mutex of the table of
// sandboxes guards holders.
type endWatch struct {
	holders int
	ended   chan struct{}
}

// watchEnd returns a channel that is closed when a sandbox ends permanently. The
// caller must call release.
func (l *lifecycle) watchEnd(ctx context.Context, rec *brig.Record) (ended <-chan struct{}, release func()) {
	var w *endWatch
	l.sandboxes.update(rec.ID, func(s *sandbox) {
		if s.end == nil {
			s.end = &endWatch{ended: make(chan struct{})}
		}
		w = s.end
		w.holders++
	})
	// The sandbox may have ended since rec was read, before the watch began.
	if now, err := l.Store.Get(ctx, rec.Tenant, string(rec.ID)); err == nil && !now.State.IsActive() || brig.KindOf(err) == brig.NotFound {
		l.announceEnd(rec.ID)
	}
	return w.ended, sync.OnceFunc(func() {
		l.sandboxes.update(rec.ID, func(s *sandbox) {
			if w.holders--; w.holders == 0 && s.end == w {
				s.end = nil
			}
		})
	})
}

// announceEnd notifies the holders of a sandbox of its permanent end.
func (l *lifecycle) announceEnd(id brig.ID) {
	l.sandboxes.update(id, func(s *sandbox) {
		if s.end != nil {
			close(s.end.ended)
			s.end = nil
		}
	})
}

// Hold implements brig.Holder.
func (e *Engine) Hold(ctx context.Context, op brig.Op, name string) (ended <-chan struct{}, release func(), err error) {
	rec, err := e.check(ctx, op, name)
	if err != nil {
		return nil, nil, err
	}
	endUse := e.lifecycle.hold(rec)
	ended, endWatch := e.lifecycle.watchEnd(ctx, rec)
	return ended, func() { endUse(); endWatch() }, nil
}

var _ brig.Holder = (*Engine)(nil)
