package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
)

// programs runs commands and background processes in existing sandboxes, and
// accesses their files and ports.
type programs struct {
	*gate
	vault            *vault
	lifecycle        *lifecycle
	streams          *streams
	watchedProcesses atomic.Int64 // number of watched processes
}

// Exec implements brig.Service. The result of an execution is recorded before
// the caller has read all output.
func (pg *programs) Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outputRelay, sio := pg.relays.Wrap(brig.ActorFrom(ctx).Tenant, sio, cancel)
	res, err := pg.execute(ctx, name, cmd, sio, outputRelay)
	if unread := outputRelay.Flush(); err == nil {
		err = unread
	}
	return res, err
}

// execute implements Exec, except for the final flush of the output relay.
func (pg *programs) execute(ctx context.Context, name string, cmd brig.Command, sio brig.IO, outputRelay *output.Relay) (*brig.Result, error) {
	return doWithDetails(ctx, pg.gate, brig.OpExec, name, func(v *call) { v.addCommand(cmd) }, func(v *call) (_ *brig.Result, err error) {
		if err := checkCommand("env", cmd); err != nil {
			return nil, err
		}
		if cmd.Timeout, err = v.limitRange.FillTimeout("timeout_ms", cmd.Timeout); err != nil {
			return nil, err
		}
		cmd = applySandboxDefaults(v.rec.Spec, cmd)
		in, releaseUse, err := pg.lifecycle.useInstanceFor(ctx, v.rec, cmd.Timeout)
		if err != nil {
			return nil, err
		}
		defer releaseUse()
		reservation, err := v.account.ReserveExec(v.rec.Spec.Labels)
		if err != nil {
			return nil, err
		}
		endSandbox := func(error) { pg.lifecycle.endOverQuota(v.rec.Tenant, v.rec.ID) } // the execution outlives its call
		ctx := ctx
		if !cmd.Survive {
			var cancel context.CancelCauseFunc
			ctx, cancel = context.WithCancelCause(ctx)
			defer cancel(nil)
			endSandbox = cancel
		}
		reservation.SetStopFunc(endSandbox)
		v.reservations = append(v.reservations, reservation)
		v.markStarted()
		xctx, s := span.Start(ctx, "exec")
		s.Set("brig.sandbox", string(v.rec.ID))
		s.Set("brig.provider", v.rec.Provider)
		res, err := pg.exec(xctx, v.rec, in, cmd, sio, outputRelay)
		endStep(s, err)
		v.addResult(res)
		if res != nil {
			v.setEnd(res.Duration, res.ExitCode, res.TimedOut, res.OOMKilled, false)
		}
		err = reservation.ResultError(err)
		if cmd.Survive && ctx.Err() != nil && res != nil && !res.Done {
			pg.holdReservation(v.rec, in, res.ExecID, reservation)
			return res, err
		}
		reservation.Release()
		return res, err
	})
}

// awaitInterval is how often the engine checks whether an execution without a
// waiting caller has ended.
const awaitInterval = time.Second

// holdReservation holds the reservation of an execution that outlived its
// caller or its server, until the execution ends.
func (pg *programs) holdReservation(rec *brig.Record, in brig.Instance, execID string, reservation *quota.Reservation) {
	reservation.SetStopFunc(func(error) { pg.lifecycle.endOverQuota(rec.Tenant, rec.ID) })
	pg.background.Go(func() {
		defer reservation.Release()
		tick := time.NewTicker(awaitInterval)
		defer tick.Stop()
		for {
			select {
			case <-pg.ctx.Done():
				return
			case <-in.Done():
				return
			case <-tick.C:
			}
			x, err := pg.Store.GetExec(pg.ctx, rec.ID, execID)
			if err == nil && !x.Done {
				err = pg.recoverExecs(pg.ctx, rec, []*brig.Execution{x})
			}
			if brig.KindOf(err) == brig.NotFound || err == nil && x.Done {
				return
			}
		}
	})
}

// exec runs one command. It records the execution before the command starts and
// after it has ended.
func (pg *programs) exec(ctx context.Context, rec *brig.Record, in brig.Instance, cmd brig.Command, sio brig.IO, outputRelay *output.Relay) (*brig.Result, error) {
	x := &brig.Execution{Sandbox: rec.ID, Command: cmd}
	x.ExecID = newExecID()
	x.Started = pg.Now().UTC()
	if err := pg.Store.PutExec(ctx, x); err != nil {
		return nil, err
	}
	failpoint.Hit("exec.recorded")
	log := output.NewLogTee(in.Log, rec.Spec.Limits.Output)
	out, errs := output.NewCapture(rec.Spec.Limits.Output), output.NewCapture(rec.Spec.Limits.Output)
	outputRelay.SetEndCheck(func() bool { return pg.hasEnded(ctx, in, x.ExecID) })
	streams := sio
	streams.Stdout = output.Tee(out, log.Stream(), sio.Stdout)
	streams.Stderr = output.Tee(errs, log.Stream(), sio.Stderr)
	var begun atomic.Bool
	streams.Started = func(id string) {
		begun.Store(true)
		if sio.Started != nil {
			sio.Started(id)
		}
	}
	var res *brig.Result
	run, err := pg.vault.withSecrets(ctx, rec, cmd) // secrets are not part of the execution record
	if err == nil {
		res, err = in.Exec(ctx, x.ExecID, run, streams)
	}
	failpoint.Hit("exec.ran")
	logErr := log.Finish(out.Output(), errs.Output())
	if logErr != nil {
		pg.Log.ErrorContext(ctx, "failed to write the log of a sandbox", "sandbox", rec.ID, "err", logErr)
	}
	if res == nil {
		res = &brig.Result{}
	}
	res.ExecID, res.Stdout, res.Stderr = x.ExecID, out.Output(), errs.Output()
	if res.OOMKilled {
		applySandboxExit(res, in)
	}
	x.Result = *res
	// Record the outcome even if the caller has disconnected.
	wctx, cancel := detachedContext(ctx)
	defer cancel()
	switch {
	case err == nil || res.Done:
		err = errors.Join(err, pg.recordExec(wctx, rec.Tenant, x))
		failpoint.Hit("exec.remembered")
	case cmd.Survive && ctx.Err() != nil:
		// The execution continues. A later request for it determines its
		// outcome. If the sandbox ends first, the record has the output so far.
		if putErr := pg.Store.PutExec(wctx, x); putErr != nil && brig.KindOf(putErr) != brig.NotFound {
			pg.Log.ErrorContext(ctx, "failed to record the output of an execution so far", "exec", x.ExecID, "err", putErr)
		}
	case begun.Load() && applySandboxExit(res, in):
		_ = pg.lifecycle.explainLoss(wctx, rec, in, err) // explainLoss records the end of the sandbox
		x.Result = *res
		return res, pg.recordExec(wctx, rec.Tenant, x)
	default:
		err = pg.lifecycle.explainLoss(wctx, rec, in, err)
		x.Done = true
		x.ExitCode = 128
		if putErr := pg.recordExec(wctx, rec.Tenant, x); putErr != nil {
			pg.Log.ErrorContext(ctx, "failed to record a failed execution", "exec", x.ExecID, "err", putErr)
		}
	}
	if err != nil {
		return res, err
	}
	return res, pg.lifecycle.renew(wctx, rec, in, 0)
}

// applySandboxExit completes the result of a program that ended with its sandbox. It returns false if
// the sandbox has not ended, or if the sandbox failed, which is an error and not the result of a
// program.
func applySandboxExit(res *brig.Result, in brig.Instance) bool {
	if !hasEnded(in) {
		return false
	}
	exit := in.Exit()
	if exit == nil || !endsPrograms(exit.Reason) {
		return false
	}
	res.SandboxEnded, res.OOMKilled = exit.Reason, exit.OOMKilled
	setKilled(res)
	return true
}

// setKilled sets the result of a program that was killed with its sandbox.
func setKilled(res *brig.Result) {
	res.Done, res.ExitCode, res.Signal = true, 137, "SIGKILL"
}

// endsPrograms reports whether the exit reason of a sandbox also explains the end of its
// programs. Other reasons are failures.
func endsPrograms(reason brig.ExitReason) bool {
	switch reason {
	case brig.Exited, brig.Stopped, brig.Killed, brig.LeaseExpired, brig.OutOfMem, brig.OverTime:
		return true
	}
	return false
}

// execsTimeout is the maximum time that an instance may take to list its executions.
const execsTimeout = 5 * time.Second

// execOnce runs the command of a one-shot. It writes no execution record,
// because the outcome of the run is recorded instead.
func (pg *programs) execOnce(ctx context.Context, m *machine, cmd brig.Command, sio brig.IO, outputRelay *output.Relay) (*brig.Result, error) {
	id := newExecID()
	limit := m.rec.Spec.Limits.Output
	out, errs := output.NewCapture(limit), output.NewCapture(limit)
	streams := sio
	streams.Stdout, streams.Stderr = output.Tee(out, sio.Stdout), output.Tee(errs, sio.Stderr)
	outputRelay.SetEndCheck(func() bool { return pg.hasEnded(ctx, m.in, id) })
	res, err := m.in.Exec(ctx, id, cmd, streams)
	if err != nil && (res == nil || !res.Done) {
		return nil, err
	}
	res.ExecID, res.Stdout, res.Stderr = id, out.Output(), errs.Output()
	return res, err
}

// recordExec records the outcome of an execution, unless its sandbox was
// removed during the execution.
func (pg *programs) recordExec(ctx context.Context, tenant string, x *brig.Execution) error {
	err := pg.Store.PutExec(ctx, x)
	if brig.KindOf(err) == brig.NotFound {
		return nil
	}
	pg.lifecycle.trim(ctx, tenant, x.Sandbox)
	return err
}

// execLeaseMargin is the minimum lease of a sandbox beyond the timeout of its command.
const execLeaseMargin = 10 * time.Second

// GetExec implements brig.Service.
func (pg *programs) GetExec(ctx context.Context, name, execID string) (*brig.Execution, error) {
	return do(ctx, pg.gate, brig.OpGetExec, name, func(v *call) (*brig.Execution, error) {
		x, err := pg.Store.GetExec(ctx, v.rec.ID, execID)
		if err != nil || x.Done {
			return x, err
		}
		if err := pg.recoverExecs(ctx, v.rec, []*brig.Execution{x}); err != nil {
			return nil, err
		}
		return x, nil
	})
}

// ListExecs implements brig.Service.
func (pg *programs) ListExecs(ctx context.Context, name string) ([]*brig.Execution, error) {
	return do(ctx, pg.gate, brig.OpListExecs, name, func(v *call) ([]*brig.Execution, error) {
		list, err := pg.Store.ListExecs(ctx, v.rec.ID)
		if err != nil {
			return nil, err
		}
		return list, pg.recoverExecs(ctx, v.rec, list)
	})
}

// recoverExecs gets the outcomes of unrecorded executions from the instance. Such an execution
// outlived its server or its caller. If the instance does not respond, for example because it is
// frozen, the records stay unchanged.
func (pg *programs) recoverExecs(ctx context.Context, rec *brig.Record, list []*brig.Execution) error {
	unfinished := unfinishedExecs(list)
	if len(unfinished) == 0 {
		return nil
	}
	if in := pg.instance(rec.ID); in != nil {
		reported, err := pg.reportedExecs(ctx, in)
		for _, k := range reported {
			if x := unfinished[k.ExecID]; x != nil && k.Done {
				if err := pg.completeExec(ctx, rec, x, func(x *brig.Execution) { x.Result = k.Result }); err != nil {
					return err
				}
			}
		}
		if !hasEnded(in) {
			return err
		}
	}
	if rec.State.IsActive() {
		return nil
	}
	// The instance has ended, and its executions with it.
	for _, x := range unfinished {
		if x.Done {
			continue
		}
		err := pg.completeExec(ctx, rec, x, func(x *brig.Execution) {
			setKilled(&x.Result)
			if exit := rec.Exit; exit != nil {
				x.OOMKilled = exit.OOMKilled
				if endsPrograms(exit.Reason) {
					x.SandboxEnded = exit.Reason
				}
			}
			x.Duration = rec.Ended.Sub(x.Started)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unfinishedExecs returns the unfinished executions of a list, by ID.
func unfinishedExecs(list []*brig.Execution) map[string]*brig.Execution {
	unfinished := map[string]*brig.Execution{}
	for _, x := range list {
		if !x.Done {
			unfinished[x.ExecID] = x
		}
	}
	return unfinished
}

// reportedExecs returns the executions that an instance reports, or none if the instance does not
// respond in time.
func (pg *programs) reportedExecs(ctx context.Context, in brig.Instance) ([]*brig.Execution, error) {
	short, cancel := context.WithTimeout(ctx, execsTimeout)
	defer cancel()
	reported, err := in.Execs(short)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return reported, err
}

// completeExec records the outcome of an execution that was not done. The execution may come from a
// list, which may lack output, so the change is applied to the stored record.
func (pg *programs) completeExec(ctx context.Context, rec *brig.Record, x *brig.Execution, change func(*brig.Execution)) error {
	whole, err := pg.Store.GetExec(ctx, rec.ID, x.ExecID)
	if brig.KindOf(err) == brig.NotFound { // the sandbox was removed
		change(x)
		return nil
	}
	if err != nil {
		return err
	}
	if whole.Done { // another call has recorded it
		*x = *whole
		return nil
	}
	change(whole)
	change(x)
	return pg.recordExec(ctx, rec.Tenant, whole)
}
