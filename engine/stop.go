package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// maxGrace is the longest time that programs may take to stop.
const maxGrace = 10 * time.Minute

// Stop implements brig.Service.
func (e *Engine) Stop(ctx context.Context, name string, grace time.Duration) (_ *brig.Sandbox, err error) {
	v, err := e.enter(ctx, brig.OpStop, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if grace < 0 || grace > maxGrace {
		return nil, brig.InvalidField("grace_ms", "%v is out of bounds", grace).WithHint("give up to %v", maxGrace)
	}
	return e.halt(ctx, v.rec, grace, brig.Stopped)
}

// Kill implements brig.Service.
func (e *Engine) Kill(ctx context.Context, name string) (_ *brig.Sandbox, err error) {
	v, err := e.enter(ctx, brig.OpKill, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.halt(ctx, v.rec, 0, brig.Killed)
}

// halt ends a sandbox's machine and keeps its record. A caller that goes away
// meanwhile does not change that.
func (e *Engine) halt(ctx context.Context, rec *brig.Record, grace time.Duration, why brig.ExitReason) (*brig.Sandbox, error) {
	if rec.State == brig.Ended {
		return &rec.Sandbox, nil
	}
	in := e.instance(rec.ID)
	if in == nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is still being created", rec.Spec.Name).
			WithHint("try again in a moment")
	}
	if err := e.keepWorkspace(ctx, rec, in, grace, why); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+cleanupTime)
	defer cancel()
	_, err := e.update(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State == brig.Ended {
			return errSettled
		}
		r.State = brig.Stopping
		return nil
	})
	if err != nil && err != errSettled {
		return nil, err
	}
	if rest, err := e.awake(ctx, rec, in); err == nil { // programs that are frozen do not hear
		defer rest()
	}
	failpoint.Hit("halt.recorded")
	if err := in.Stop(ctx, grace, why); err != nil {
		return nil, err
	}
	failpoint.Hit("halt.stopped")
	done, err := e.settle(ctx, rec.Tenant, rec.ID, in)
	if err != nil {
		return nil, err
	}
	return &done.Sandbox, nil
}

// Remove implements brig.Service.
func (e *Engine) Remove(ctx context.Context, name string) (err error) {
	v, err := e.enter(ctx, brig.OpRemove, name)
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	if v.rec.State == brig.Creating {
		return brig.Errorf(brig.FailedPrecondition, "sandbox %q is still being created", v.rec.Spec.Name).
			WithHint("try again in a moment")
	}
	if in := e.instance(v.rec.ID); in != nil {
		if err := e.keepWorkspace(ctx, v.rec, in, 0, brig.Stopped); err != nil {
			return err
		}
	}
	ctx, cancel := cleanup(ctx)
	defer cancel()
	return e.remove(ctx, v.rec)
}

// remove ends the machine, removes what is left of it, and forgets it, in
// this order: what cannot be removed stays on record.
func (e *Engine) remove(ctx context.Context, rec *brig.Record) error {
	in := e.instance(rec.ID)
	if in == nil {
		var err error
		in, err = e.recovered(ctx, rec)
		if err != nil && brig.KindOf(err) != brig.NotFound && !errors.Is(err, errNotConfigured) {
			return err
		}
	}
	if in != nil {
		if err := in.Destroy(ctx); err != nil {
			return err
		}
		if rec.State.Live() && rec.State != brig.Creating && !rec.Spec.Ephemeral {
			// Also the end of what is removed is on record, and only once.
			if _, err := e.settle(ctx, rec.Tenant, rec.ID, in); err != nil && brig.KindOf(err) != brig.NotFound {
				return err
			}
		}
	}
	failpoint.Hit("remove.destroyed")
	if err := e.Store.Delete(ctx, rec.ID); err != nil {
		return err
	}
	failpoint.Hit("remove.deleted")
	e.drop(rec.ID)
	return nil
}
