package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// crashWait is how long a failed call waits for its instance to be reported as
// ended, after its connection to the agent or interpreter broke.
const crashWait = 300 * time.Millisecond

// explainEnd replaces the error of a call if its sandbox ended during the call. The connections of
// an instance break before the engine detects the end of the instance. Any operation on a broken
// connection may fail. Such a failure is not an error of the server, so the caller gets an
// error that describes the state of the sandbox.
func (v *call) explainEnd(ctx context.Context, err error) error {
	if err == nil || v.rec == nil || v.op == brig.OpStop || v.op == brig.OpKill || v.op == brig.OpRemove {
		return err
	}
	wait := crashWait
	switch kind := brig.KindOf(err); {
	case kind == brig.Internal, kind == brig.Unavailable, errors.Is(err, interpreter.ErrGone):
	case kind == brig.ConnectionFailed:
		wait = 0
	default:
		return err
	}
	if ended := v.e.endError(ctx, v.rec, wait); ended != nil {
		return brig.AsError(ended).Because(err)
	}
	return err
}

// endError returns an error that describes the end of the call's sandbox, or nil if the sandbox
// still exists. If the sandbox is being stopped, endError waits for its end.
func (l *lifecycle) endError(ctx context.Context, rec *brig.Record, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endReportTimeout)
	defer cancel()
	in := l.instance(rec.ID)
	now, err := l.Store.Get(ctx, rec.Tenant, string(rec.ID))
	if err != nil {
		if brig.KindOf(err) == brig.NotFound {
			return err
		}
		return nil // the error of the call is more specific
	}
	if now.State == brig.Ended {
		_, err := l.runningInstance(now)
		return err
	}
	if in == nil {
		return nil // it is being created or removed
	}
	if now.State == brig.Stopping {
		wait = endReportTimeout
	}
	select {
	case <-in.Done():
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return nil
	}
	if exit := in.Exit(); exit != nil && exit.Reason == brig.Saved {
		return nil // the sandbox is paused
	}
	now, err = l.recordEnd(ctx, rec.Tenant, rec.ID, in)
	if err == nil {
		_, err = l.runningInstance(now)
	}
	return err
}
