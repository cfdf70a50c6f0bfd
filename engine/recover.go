package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Recover reconciles the instances of this host with the records of an earlier engine. It adopts
// running instances, ends instances that were never acknowledged or depended on a caller, and
// removes instances without a record. It must be called once, before the engine is used.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.reloadSettings(ctx); err != nil {
		return err
	}
	var recs []*brig.Record
	if err := e.Store.All(ctx, func(r *brig.Record) error {
		recs = append(recs, r)
		return nil
	}); err != nil {
		return err
	}
	e.checkProviders(ctx)
	keep, errs := e.recoverAll(ctx, recs)
	n, err := e.sweep(ctx, keep)
	failpoint.Hit("recover.swept")
	if n > 0 {
		e.Log.InfoContext(ctx, "removed resources that belong to no record", "count", n)
	}
	if layers := e.Options.Tools.Layers; layers != nil {
		layers.Sweep()
	}
	err = errors.Join(err, e.recoverVolumes(ctx))
	e.background.Go(e.housekeep)
	if e.Options.Workspaces != nil {
		e.background.Go(e.sweepPeriodically)
	}
	e.background.Go(e.countUsage)
	e.background.Go(func() { e.runEvery(refusalsInterval, e.countRefusals) })
	if len(e.Drivers) > 0 {
		e.background.Go(e.watchSettings)
		e.background.Go(e.pingProviders)
		e.background.Go(func() { e.runEvery(skippedInterval, e.recoverSkipped) })
	}
	e.background.Go(e.enforceTimeQuotas)
	e.background.Go(e.packs.run)
	e.background.Go(e.runHealthChecks)
	e.background.Go(func() { e.pool.run(e.ctx) })
	e.background.Go(func() { e.boots.run(e.ctx) })
	return errors.Join(append(errs, err)...)
}

// maxConcurrentRecoveries is the maximum number of records that are recovered concurrently. Most of
// the time is spent waiting for instances to end.
const maxConcurrentRecoveries = 16

// recoverAll recovers all records, and returns the IDs whose instances must persist.
func (e *Engine) recoverAll(ctx context.Context, recs []*brig.Record) (map[brig.ID]bool, []error) {
	var (
		work sync.WaitGroup
		mu   sync.Mutex // guards the variables below
		errs []error
	)
	keep := map[brig.ID]bool{}
	slots := make(chan struct{}, maxConcurrentRecoveries)
	for _, r := range recs {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			kept, err := e.recoverOne(ctx, r)
			failpoint.Hit("recover.one")
			mu.Lock()
			defer mu.Unlock()
			if err != nil && cmp.Or(r.Provider, e.builtinID) != e.builtinID {
				e.Log.WarnContext(ctx, "failed to recover a sandbox at a provider; retrying", "sandbox", r.ID, "provider", r.Provider, "err", err)
				e.skipped.add(r)
				keep[r.ID] = true
				return
			}
			if err != nil {
				e.Log.ErrorContext(ctx, "failed to recover a sandbox", "sandbox", r.ID, "err", err)
				errs = append(errs, err)
			}
			if kept || err != nil {
				keep[r.ID] = true
			}
		})
	}
	work.Wait()
	return keep, errs
}

// recoverOne recovers one record and reports whether the remains of its
// instance must persist.
func (e *Engine) recoverOne(ctx context.Context, r *brig.Record) (bool, error) {
	if err := e.checkReachable(&r.Sandbox); err != nil && r.State != brig.Ended {
		return true, err
	}
	if r.State == brig.Creating || r.Spec.Ephemeral || lacksPackages(r) || r.State == brig.Running && r.Spec.BuildRights {
		// No caller has received the sandbox, or its caller has disconnected, or the server that
		// built a template in it has ended.
		return false, e.destroyAndDelete(ctx, r)
	}
	if r.State == brig.Ended {
		e.removeStaleSave(ctx, r)
		return true, nil
	}
	if err := e.recoverGrants(ctx, r); err != nil {
		return true, err
	}
	if r.State == brig.Paused {
		running, err := e.recoverPaused(ctx, r)
		if err != nil || !running {
			return true, err
		}
	}
	if err := e.trackExisting(ctx, r); err != nil {
		return true, err
	}
	in, err := e.recoverInstance(ctx, r)
	if brig.KindOf(err) == brig.NotFound {
		defer e.unregister(r.ID)
		_, err = e.updateRecordWith(ctx, r.Tenant, r.ID, func(r *brig.Record) error {
			r.State, r.Ended = brig.Ended, e.Now().UTC()
			r.Exit = &brig.Exit{Code: 137, Reason: brig.Crashed, At: r.Ended}
			return nil
		}, func(r *brig.Record) []brig.Event { return []brig.Event{e.endedEvent(r)} })
		if err == nil {
			e.Observer.SandboxEnded(r.Provider, brig.Crashed)
			e.trimLater(ctx, r.Tenant)
		}
		// Return false, so that Sweep removes any remains of the instance, for example if a server
		// died during its removal.
		return false, err
	}
	if err != nil {
		return true, err
	}
	backend, err := e.backendOf(&r.Sandbox)
	if err != nil {
		return true, err
	}
	if exit := in.Exit(); hasEnded(in) && exit.Reason == brig.Saved && r.State != brig.Stopping {
		return true, e.recoverSave(ctx, r)
	}
	e.removeStaleSave(ctx, r)
	backend.Retain()
	e.adopt(r, backend, in)
	if hasEnded(in) {
		_, err = e.recordEnd(ctx, r.Tenant, r.ID, in)
		return true, err
	}
	if r.State == brig.Stopping {
		// The server died while it stopped the sandbox.
		_, err = e.stopInstance(ctx, r, 0, brig.Stopped)
		return true, err
	}
	if err := e.openEgress(ctx, r, in); err != nil {
		// The sandbox runs, but has no network access until its egress session
		// is open.
		e.Log.WarnContext(ctx, "failed to open the egress session of a sandbox", "sandbox", r.ID, "err", err)
		e.reopenEgressAsync(r, in)
	}
	e.startPauser(ctx, r, in)
	e.boxes.adopt(r)
	if err := e.reattachProcesses(ctx, r, in, attachment{copied: r.Copied}); err != nil {
		return true, err
	}
	list, err := e.Store.ListExecs(ctx, r.ID)
	if err != nil {
		return true, err
	}
	if !r.Booted.IsZero() { // the end of the executions may not have been recorded before a failure
		if err := e.endExecs(ctx, r, list, r.Booted, r.Booted); err != nil {
			return true, err
		}
	}
	err = e.recoverExecs(ctx, r, list)
	a, lost := e.getAccount(ctx, r.Tenant)
	for _, x := range list {
		if lost == nil && !x.Done {
			e.holdReservation(r, in, x.ExecID, a.ResumeExec(r.Spec.Labels))
		}
	}
	return true, errors.Join(err, lost)
}

// housekeepInterval is the interval of housekeeping.
const housekeepInterval = time.Minute

// pruneWait is how long the removal of an expired paused sandbox waits for a fork or
// resume of the sandbox.
const pruneWait = time.Second

// housekeep periodically retries failed removals, and removes data that has
// been kept long enough.
func (e *Engine) housekeep() {
	e.runEvery(housekeepInterval, func() {
		e.retryDestroys(e.ctx)
		e.retryDeletes(e.ctx)
		if err := e.deleteUnused(e.ctx); err != nil && e.ctx.Err() == nil {
			e.Log.Error("failed to delete removed volumes", "err", err)
		}
		e.writeRejections(e.ctx)
		if err := e.pruneExpired(e.ctx); err != nil && e.ctx.Err() == nil {
			e.Log.Error("failed to remove expired records", "err", err)
		}
	})
}

// pruneExpired removes old outcomes and sandboxes that ended long ago.
func (e *Engine) pruneExpired(ctx context.Context) error {
	now, sessions := e.Now(), e.Clock.Now()
	if now.Before(sessions) {
		sessions = now // a temporarily wrong system clock must not delete sessions
	}
	errs := []error{
		e.Store.PruneRuns(ctx, now.Add(-e.RunRetention)), e.pruneAudit(ctx, now),
		e.Store.PruneSessions(ctx, sessions, sessions.Add(-e.SessionIdle)),
		e.Store.PruneUsage(ctx, brig.DayOf(now.AddDate(0, 0, -usageRetention))),
	}
	var old, paused []*brig.Record
	errs = append(errs, e.Store.All(ctx, func(r *brig.Record) error {
		if r.State == brig.Ended && now.Sub(r.Ended) > e.EndedRetention {
			old = append(old, r)
		}
		if r.State == brig.Paused && now.After(r.Expires) {
			paused = append(paused, r)
		}
		return nil
	}))
	for _, r := range old {
		errs = append(errs, e.destroyAndDelete(ctx, r))
	}
	for _, r := range paused {
		// A fork or resume of one sandbox must not delay the other removals. The next round
		// retries.
		short, cancel := context.WithTimeout(ctx, pruneWait)
		_, err := e.endPaused(short, r, brig.LeaseExpired)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, e.trimAll(ctx))...)
}

// recoverSkipped recovers the skipped sandboxes whose provider responds again.
func (e *Engine) recoverSkipped() {
	for id, s := range e.skipped.list() {
		r, err := e.Store.Get(e.ctx, s.tenant, s.name)
		if brig.KindOf(err) == brig.NotFound || err == nil && (r.ID != id || !r.State.IsActive()) {
			e.skipped.remove(id)
			continue
		}
		if err != nil || e.checkReachable(&r.Sandbox) != nil || e.instance(id) != nil {
			continue
		}
		if _, err := e.recoverOne(e.ctx, r); err != nil {
			e.Log.WarnContext(e.ctx, "failed to recover a sandbox whose provider was unavailable", "sandbox", id, "err", err)
			continue
		}
		e.skipped.remove(id)
		e.Log.InfoContext(e.ctx, "recovered a sandbox whose provider was unavailable", "sandbox", id, "provider", r.Provider)
	}
}

// sweep removes orphaned instances at every provider that responds. It returns
// only the built-in provider's error, and logs the errors of other providers.
func (e *Engine) sweep(ctx context.Context, keep map[brig.ID]bool) (n int, err error) {
	for _, m := range e.backends.Current().Backends {
		if broke, _ := m.Health.LastFailure(); broke && !e.isBuiltin(m) {
			continue
		}
		found, lost := m.Provider.Sweep(ctx, keep)
		if n += found; lost == nil {
			continue
		}
		if e.isBuiltin(m) {
			err = errors.Join(err, lost)
		} else {
			e.Log.WarnContext(ctx, "failed to remove unknown sandboxes at a provider", "provider", m.ID, "err", lost)
		}
	}
	return n, err
}
