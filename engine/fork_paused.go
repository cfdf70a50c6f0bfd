package engine

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// forkPaused makes a paused copy of the sandbox of a call. The copy has a save of the original, but
// no instance. The original continues to run.
func (f *forks) forkPaused(ctx context.Context, v *call, spec brig.Spec, given []brig.Secret) (_ *brig.Record, err error) {
	saver, backend, err := f.providers.saverOf(v.rec)
	if err != nil {
		return nil, err
	}
	if v.rec.State == brig.Paused {
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is paused already", v.rec.Spec.Name).
			WithHint("fork without paused: the original stays paused, and the copies run")
	}
	reserved, err := v.account.ReservePause()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			reserved.Release()
		}
	}()
	if err := reserved.AddDisk(0); err != nil { // a tenant without storage writes nothing
		return nil, err
	}
	if err := f.capacity.CheckAdmission(v.rec.Tenant); err != nil {
		return nil, err
	}
	now := f.Now().UTC()
	rec := newCopy(v.rec, backend, spec, given)
	rec.Created, rec.Expires = now, now.Add(spec.TTL)
	if err := f.Store.Put(ctx, rec); err != nil {
		return nil, err
	}
	failpoint.Hit("fork.paused")
	defer func() {
		if err != nil {
			f.pauser.discardSave(ctx, saver, saveOf(rec.ID), "sandbox", rec.ID)
			f.deleteRecord(ctx, rec)
		}
	}()
	save, executions, err := f.saveOrigin(ctx, saver, backend, v.rec, saveOf(rec.ID), f.capacity.Acquire)
	if err != nil {
		return nil, err
	}
	if err := reserved.AddDisk(save.Bytes); err != nil {
		return nil, err
	}
	rec.State, rec.Copied = brig.Paused, true
	rec.Pause = &brig.Pause{At: f.Now().UTC(), Bytes: save.Bytes, Left: spec.TTL, Executions: executions}
	limitRange, _ := v.account.CallLimits()
	rec.Expires = rec.Pause.At.Add(limitRange.MaxPause)
	if err := f.Store.Put(ctx, rec, f.copyEvent(v, rec)); err != nil {
		return nil, err
	}
	f.track(rec.ID, reserved)
	f.pauser.packs.schedule(rec, f.PackAfter)
	return rec, nil
}
