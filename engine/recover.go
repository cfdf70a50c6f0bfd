package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Recover makes the machines of this host match the records, as an earlier
// engine left both: what runs is adopted, what was never acknowledged or was
// tied to a caller is ended, and what nobody owns is removed. It must be
// called once, before the engine is used.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.reload(ctx); err != nil {
		return err
	}
	var recs []*brig.Record
	if err := e.Store.All(ctx, func(r *brig.Record) error {
		recs = append(recs, r)
		return nil
	}); err != nil {
		return err
	}
	known, errs := e.recoverAll(ctx, recs)
	n, err := e.sweep(ctx, known)
	failpoint.Hit("recover.swept")
	if n > 0 {
		e.Log.InfoContext(ctx, "removed what nobody owned", "count", n)
	}
	if shelf := e.Options.Tools.Layers; shelf != nil {
		shelf.Sweep()
	}
	e.work.Go(e.housekeep)
	e.work.Go(e.countUsage)
	if len(e.Drivers) > 0 {
		e.work.Go(e.watchSettings)
		e.work.Go(e.askProviders)
	}
	e.work.Go(e.endOverdue)
	e.work.Go(e.trials)
	e.work.Go(func() { e.pool.run(e.ctx) })
	return errors.Join(append(errs, err)...)
}

// recoverAtOnce is how many records are dealt with at once: most of the time
// is spent waiting for machines to end.
const recoverAtOnce = 16

// recoverAll deals with all records, and returns those that stay.
func (e *Engine) recoverAll(ctx context.Context, recs []*brig.Record) (map[brig.ID]bool, []error) {
	var (
		work sync.WaitGroup
		mu   sync.Mutex // guards the variables below
		errs []error
	)
	known := map[brig.ID]bool{}
	slots := make(chan struct{}, recoverAtOnce)
	for _, r := range recs {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			kept, err := e.recoverOne(ctx, r)
			failpoint.Hit("recover.one")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.Log.ErrorContext(ctx, "recover a sandbox", "sandbox", r.ID, "err", err)
				errs = append(errs, err)
			}
			if kept || err != nil {
				known[r.ID] = true
			}
		})
	}
	work.Wait()
	return known, errs
}

// recoverOne deals with one record and reports whether what there is of its
// machine stays.
func (e *Engine) recoverOne(ctx context.Context, r *brig.Record) (bool, error) {
	if r.State == brig.Creating || r.Spec.Ephemeral || unequipped(r) {
		// Nobody was told of it, or whoever was told is gone.
		return false, e.remove(ctx, r)
	}
	if r.State == brig.Ended {
		return true, nil
	}
	if err := e.houseKept(ctx, r); err != nil {
		return true, err
	}
	in, err := e.recovered(ctx, r)
	if brig.KindOf(err) == brig.NotFound {
		defer e.drop(r.ID)
		_, err = e.updateAnd(ctx, r.Tenant, r.ID, func(r *brig.Record) error {
			r.State, r.Ended = brig.Ended, e.Now().UTC()
			r.Exit = &brig.Exit{Code: 137, Reason: brig.Crashed, At: r.Ended}
			return nil
		}, func(r *brig.Record) []brig.Event { return []brig.Event{e.ended(r)} })
		// What its provider does not know is swept: a server may have died
		// while it removed that.
		return false, err
	}
	if err != nil {
		return true, err
	}
	at, err := e.memberOf(&r.Sandbox)
	if err != nil {
		return true, err
	}
	at.hold()
	e.adopt(r, at, in)
	if gone(in) {
		_, err = e.settle(ctx, r.Tenant, r.ID, in)
		return true, err
	}
	if r.State == brig.Stopping {
		// It was being stopped when the server died.
		_, err = e.halt(ctx, r, 0, brig.Stopped)
		return true, err
	}
	if err := e.openWay(ctx, r, in); err != nil {
		// Without it nothing leaves the sandbox, and it goes on.
		e.Log.WarnContext(ctx, "open the way out of a sandbox", "sandbox", r.ID, "err", err)
		e.openLater(r, in)
	}
	e.sleep(ctx, r, in)
	e.boxes.inherit(r)
	if err := e.recoverKept(ctx, r, in); err != nil {
		return true, err
	}
	list, err := e.Store.ListExecs(ctx, r.ID)
	if err != nil {
		return true, err
	}
	err = e.catchUp(ctx, r, list)
	a, lost := e.account(ctx, r.Tenant)
	for _, x := range list {
		if lost == nil && !x.Done {
			e.await(r, in, x.ExecID, a.goOn(r.Spec.Labels))
		}
	}
	return true, errors.Join(err, lost)
}

// housekeeping happens this often.
const houseEvery = time.Minute

// housekeep forgets what has been kept long enough.
func (e *Engine) housekeep() {
	e.every(houseEvery, func() {
		e.destroyDoomed(e.ctx)
		e.forgetUnwanted(e.ctx)
		if err := e.tidy(e.ctx); err != nil && e.ctx.Err() == nil {
			e.Log.Error("forget old things", "err", err)
		}
	})
}

// every does f again and again until the engine ends.
func (e *Engine) every(d time.Duration, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// tidy forgets old outcomes and sandboxes that ended long ago.
func (e *Engine) tidy(ctx context.Context) error {
	now := e.Now()
	errs := []error{
		e.Store.PruneRuns(ctx, now.Add(-e.KeepRuns)), e.pruneAudit(ctx, now),
		e.Store.PruneSessions(ctx, now, now.Add(-e.SessionIdle)),
		e.Store.PruneUsage(ctx, brig.DayOf(now.AddDate(0, 0, -keepUsage))),
	}
	var old []*brig.Record
	errs = append(errs, e.Store.All(ctx, func(r *brig.Record) error {
		if r.State == brig.Ended && now.Sub(r.Ended) > e.KeepEnded {
			old = append(old, r)
		}
		return nil
	}))
	for _, r := range old {
		errs = append(errs, e.remove(ctx, r))
	}
	return errors.Join(errs...)
}
