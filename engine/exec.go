package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
)

// Exec implements brig.Service.
func (e *Engine) Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (_ *brig.Result, err error) {
	v, err := e.enter(ctx, brig.OpExec, name, func(v *visit) { v.sayCommand(cmd) })
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := checkCommand("env", cmd); err != nil {
		return nil, err
	}
	if cmd.Timeout, err = v.bounds.FillTimeout("timeout_ms", cmd.Timeout); err != nil {
		return nil, err
	}
	cmd = inSandbox(v.rec.Spec, cmd)
	in, rest, err := e.occupy(ctx, v.rec, cmd.Timeout)
	if err != nil {
		return nil, err
	}
	defer rest()
	turn, err := v.account.begin(v.rec.Spec.Labels)
	if err != nil {
		return nil, err
	}
	stop := func(error) { e.endOver(v.rec.Tenant, v.rec.ID) } // it outlives its call
	if !cmd.Survive {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		stop = cancel
	}
	turn.endsBy(stop)
	v.begins()
	xctx, s := span.Start(ctx, "exec")
	s.Set("brig.sandbox", string(v.rec.ID))
	s.Set("brig.provider", v.rec.Provider)
	res, err := e.exec(xctx, v.rec, in, cmd, sio)
	endStep(s, err)
	v.sayResult(res)
	if res != nil {
		v.ended(res.Duration, res.ExitCode, res.TimedOut, res.OOMKilled, false)
	}
	err = turn.verdict(err)
	if cmd.Survive && ctx.Err() != nil && res != nil && !res.Done {
		e.await(v.rec, in, res.ExecID, turn)
		return res, err
	}
	turn.end()
	return res, err
}

// awaitEvery is how often is looked whether an execution has ended for which
// nobody waits.
const awaitEvery = time.Second

// await keeps the seat of an execution that survived its caller, or its
// server, until it ends.
func (e *Engine) await(rec *brig.Record, in brig.Instance, execID string, turn *seat) {
	turn.endsBy(func(error) { e.endOver(rec.Tenant, rec.ID) })
	e.work.Go(func() {
		defer turn.end()
		tick := time.NewTicker(awaitEvery)
		defer tick.Stop()
		for {
			select {
			case <-e.ctx.Done():
				return
			case <-in.Done():
				return
			case <-tick.C:
			}
			x, err := e.Store.GetExec(e.ctx, rec.ID, execID)
			if err == nil && !x.Done {
				err = e.catchUp(e.ctx, rec, []*brig.Execution{x})
			}
			if brig.KindOf(err) == brig.NotFound || err == nil && x.Done {
				return
			}
		}
	})
}

// exec runs one command, on record before it starts and when it has ended.
func (e *Engine) exec(ctx context.Context, rec *brig.Record, in brig.Instance, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	x := &brig.Execution{Sandbox: rec.ID, Command: cmd}
	x.ExecID = newExecID()
	x.Started = e.Now().UTC()
	if err := e.Store.PutExec(ctx, x); err != nil {
		return nil, err
	}
	failpoint.Hit("exec.recorded")
	log := newLogTee(in, rec.Spec.Limits.Output)
	out, errs := newCapture(rec.Spec.Limits.Output), newCapture(rec.Spec.Limits.Output)
	streams := sio
	streams.Stdout = tee(out, log.stream(), sio.Stdout)
	streams.Stderr = tee(errs, log.stream(), sio.Stderr)
	var res *brig.Result
	run, err := e.withSecrets(ctx, rec, cmd) // which are not on record
	if err == nil {
		res, err = in.Exec(ctx, x.ExecID, run, streams)
	}
	failpoint.Hit("exec.ran")
	logErr := log.finish(out.output(), errs.output())
	if logErr != nil {
		e.Log.ErrorContext(ctx, "write the log of a sandbox", "sandbox", rec.ID, "err", logErr)
	}
	if res == nil {
		res = &brig.Result{}
	}
	res.ExecID, res.Stdout, res.Stderr = x.ExecID, out.output(), errs.output()
	x.Result = *res
	// The caller may have gone, but what happened has happened.
	wctx, cancel := cleanup(ctx)
	defer cancel()
	switch {
	case err == nil || res.Done:
		err = errors.Join(err, e.remember(wctx, x))
		failpoint.Hit("exec.remembered")
	case cmd.Survive && ctx.Err() != nil:
		// It goes on; whoever asks for it later finds out how it ended.
	default:
		err = e.lost(wctx, rec, in, err)
		x.Done = true
		x.ExitCode = 128
		if putErr := e.remember(wctx, x); putErr != nil {
			e.Log.ErrorContext(ctx, "record an execution that failed", "exec", x.ExecID, "err", putErr)
		}
	}
	if err != nil {
		return res, err
	}
	return res, e.renew(wctx, rec, in, 0)
}

// execOnce runs the command of a one-shot, whose outcome is its record.
func (e *Engine) execOnce(ctx context.Context, m *machine, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	id := newExecID()
	limit := m.rec.Spec.Limits.Output
	out, errs := newCapture(limit), newCapture(limit)
	streams := sio
	streams.Stdout, streams.Stderr = tee(out, sio.Stdout), tee(errs, sio.Stderr)
	res, err := m.in.Exec(ctx, id, cmd, streams)
	if err != nil && (res == nil || !res.Done) {
		return nil, err
	}
	res.ExecID, res.Stdout, res.Stderr = id, out.output(), errs.output()
	return res, err
}

// remember records how an execution ended, unless its sandbox has been
// forgotten meanwhile.
func (e *Engine) remember(ctx context.Context, x *brig.Execution) error {
	err := e.Store.PutExec(ctx, x)
	if brig.KindOf(err) == brig.NotFound {
		return nil
	}
	return err
}

// execMargin is how much longer than a command's time its sandbox lives.
const execMargin = 10 * time.Second

// renew makes sure that a sandbox in use lives for its TTL from now, or for
// as long as a command may take. Small gains are not worth a write.
func (e *Engine) renew(ctx context.Context, rec *brig.Record, in brig.Instance, timeout time.Duration) error {
	if rec.Spec.Ephemeral || rec.Spec.FixedLease {
		return nil
	}
	if gone(in) {
		return nil
	}
	want := e.Now().Add(max(rec.Spec.TTL, timeout+execMargin))
	if want.Sub(rec.Expires) < rec.Spec.TTL/20 {
		return nil
	}
	now, err := e.setLease(ctx, rec, in, want)
	if err == nil {
		rec.Expires = now.Expires
	}
	return err
}

// GetExec implements brig.Service.
func (e *Engine) GetExec(ctx context.Context, name, execID string) (_ *brig.Execution, err error) {
	v, err := e.enter(ctx, brig.OpGetExec, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	x, err := e.Store.GetExec(ctx, v.rec.ID, execID)
	if err != nil || x.Done {
		return x, err
	}
	if err := e.catchUp(ctx, v.rec, []*brig.Execution{x}); err != nil {
		return nil, err
	}
	return x, nil
}

// ListExecs implements brig.Service.
func (e *Engine) ListExecs(ctx context.Context, name string) (_ []*brig.Execution, err error) {
	v, err := e.enter(ctx, brig.OpListExecs, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	list, err := e.Store.ListExecs(ctx, v.rec.ID)
	if err != nil {
		return nil, err
	}
	return list, e.catchUp(ctx, v.rec, list)
}

// catchUp asks the machine how executions went that nobody was there to
// record: their server had been killed, or their caller let them survive.
func (e *Engine) catchUp(ctx context.Context, rec *brig.Record, list []*brig.Execution) error {
	open := map[string]*brig.Execution{}
	for _, x := range list {
		if !x.Done {
			open[x.ExecID] = x
		}
	}
	if len(open) == 0 {
		return nil
	}
	if in := e.instance(rec.ID); in != nil {
		known, err := in.Execs(ctx)
		if err == nil {
			for _, k := range known {
				if x := open[k.ExecID]; x != nil && k.Done {
					x.Result = k.Result
					if err := e.Store.PutExec(ctx, x); err != nil {
						return err
					}
				}
			}
			return nil
		}
		if !gone(in) {
			return err
		}
	}
	if rec.State.Live() {
		return nil
	}
	// The machine is gone and they with it.
	for _, x := range open {
		x.Done, x.ExitCode, x.Signal = true, 137, "SIGKILL"
		x.OOMKilled = rec.Exit != nil && rec.Exit.OOMKilled
		x.Duration = rec.Ended.Sub(x.Started)
		if err := e.Store.PutExec(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// Logs implements brig.Service.
func (e *Engine) Logs(ctx context.Context, name string, o brig.LogOptions) (_ io.ReadCloser, err error) {
	v, err := e.enter(ctx, brig.OpLogs, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if o.Tail < 0 {
		return nil, brig.InvalidField("tail", "%d is negative", o.Tail).WithHint("give a number of lines, or leave it out for all")
	}
	in := e.instance(v.rec.ID)
	if in == nil {
		if in, err = e.recovered(ctx, v.rec); err != nil {
			return nil, err
		}
	}
	read := in.Logs
	if o.Times {
		read = in.TimedLogs
	}
	all, err := read(ctx)
	if err != nil || o.Tail == 0 {
		return all, err
	}
	return tailLines(all, o.Tail)
}
