package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/tool"
)

// toolGrace is how long a tool whose time is over may take to end.
const toolGrace = 5 * time.Second

// callTool makes a call in a box. The box is sound if nothing of the call is
// left in it.
func (e *Engine) callTool(ctx context.Context, v *visit, b *room, j *toolJob) (_ *brig.ToolResult, sound bool, err error) {
	rec, in := b.rec, b.in
	v.id = rec.ID
	v.takesPlace(rec)
	cmd := inSandbox(rec.Spec, brig.Command{Argv: tool.Argv(j.tool.Language), Env: j.env})
	p, err := in.Start(ctx, newExecID(), cmd, brig.Streams{Channel: true})
	if err != nil {
		return nil, false, e.lost(ctx, rec, in, noInterpreter(rec, j.tool.Language, err))
	}
	v.begins()
	c := &toolCall{e: e, j: j, in: in, p: p, alone: e.templates[rec.Spec.Template].Start == nil, limit: rec.Spec.Limits.Output, log: newLogTee(in, rec.Spec.Limits.Output)}
	err = c.do(ctx)
	sound = c.end(ctx) && err == nil
	if err != nil {
		return nil, false, e.lost(ctx, rec, in, err)
	}
	c.res.Name, c.res.Sandbox, c.res.Reused, c.res.Fingerprint = j.tool.Name, b.name, b.reused, j.fingerprint
	if !sound {
		return &c.res, false, nil
	}
	// From now on, and not from when it had to be over at the latest.
	if _, err := e.setLease(context.WithoutCancel(ctx), rec, in, e.Now().Add(rec.Spec.TTL)); err != nil {
		e.Log.WarnContext(ctx, "renew the lease of a box of tools", "sandbox", rec.ID, "err", err)
		sound = false
	}
	return &c.res, sound, nil
}

// noInterpreter explains why a driver did not start: mostly the image has no
// interpreter.
func noInterpreter(rec *brig.Record, l brig.Language, err error) error {
	if brig.AsError(err).Field != "command" {
		return err
	}
	return brig.InvalidField("source_type", "image %q has no interpreter of %s", rec.Spec.Image, l).
		WithHint("choose a template that has it").Because(err)
}

// toolCall is one call of a function.
type toolCall struct {
	e     *Engine
	j     *toolJob
	in    brig.Instance
	p     brig.Process
	alone bool // nothing else runs in the box
	limit int64
	log   *logTee

	timedOut atomic.Bool
	receiver tool.Receiver
	report   *tool.Report
	res      brig.ToolResult
}

// do has the function called, and returns when there is a report or will be
// none. Time that runs out asks the program to end, and kills it if it does
// not; a caller who goes away has it killed.
func (c *toolCall) do(ctx context.Context) error {
	begin := time.Now()
	out, errs := newCapture(c.limit), newCapture(c.limit)
	wctx := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { c.kill(wctx) })()
	var late atomic.Pointer[time.Timer]
	clock := time.AfterFunc(c.j.tool.Timeout, func() {
		c.timedOut.Store(true)
		late.Store(time.AfterFunc(toolGrace, func() { c.kill(wctx) }))
		sctx, cancel := context.WithTimeout(wctx, toolGrace)
		defer cancel()
		_ = c.p.Signal(sctx, "SIGTERM") // who does not hear it is killed
	})
	defer func() {
		clock.Stop()
		if t := late.Load(); t != nil {
			t.Stop()
		}
	}()
	_ = c.p.Stdin().Close() // an input that cannot be closed has ended
	err := c.converse(out, errs)
	c.res.Duration = time.Since(begin)
	c.res.Stdout, c.res.Stderr = out.output(), errs.output()
	if lost := c.log.finish(c.res.Stdout, c.res.Stderr); lost != nil {
		c.e.Log.ErrorContext(ctx, "write the log of a sandbox", "err", lost)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return c.conclude(ctx)
}

// converse sends the order and reads what comes until the report is there.
func (c *toolCall) converse(out, errs io.Writer) error {
	c.receiver.Key = tool.NewKey()
	c.j.order.Key = c.receiver.Key.String()
	order, err := json.Marshal(c.j.order)
	if err != nil {
		return fmt.Errorf("encode order: %w", err)
	}
	if err := c.p.Send(order); err != nil && !errors.Is(err, net.ErrClosed) {
		// It has ended, or does not listen: what it said is read all the same.
		c.e.Log.Debug("send an order to a tool", "err", err)
	}
	stdout, stderr := tee(out, c.log.stream()), tee(errs, c.log.stream())
	for c.report == nil {
		from, b, err := c.p.Receive()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		case from == brig.FromMessage:
			c.report = c.receiver.Receive(b)
		case from == brig.FromStdout:
			_, _ = stdout.Write(b) // it never fails
		default:
			_, _ = stderr.Write(b) // as above
		}
	}
	return nil
}

// kill ends the program and all that it started.
func (c *toolCall) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := c.p.Kill(ctx); err != nil {
		c.e.Log.DebugContext(ctx, "kill a tool", "err", err)
		_ = c.p.Close() // nobody waits for it any longer
	}
}

// end makes sure that nothing of the call goes on, and reports whether it is
// sure.
func (c *toolCall) end(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	killed := c.p.Kill(ctx)
	_, waited := c.p.Wait(ctx)
	_ = c.p.Close() // it has ended
	if killed != nil || waited != nil || gone(c.in) {
		return false
	}
	if c.alone {
		return c.in.Quiet(ctx, 0) == nil
	}
	// A tree is known by its first process, which waits with the report.
	return c.report != nil
}

// conclude says how the call went: by the function's report, or by what the
// host knows when that did not come.
func (c *toolCall) conclude(ctx context.Context) error {
	name := cmp.Or(c.j.tool.Name, tool.LastFunction(c.j.tool.Source))
	var failure *brig.ProgramError
	switch r := c.report; {
	case r == nil:
		var err error
		if failure, err = c.postMortem(ctx); err != nil {
			return err
		}
	case r.Failure != nil:
		failure = &brig.ProgramError{Name: r.Failure.Name, Message: r.Failure.Message, Traceback: r.Failure.Traceback}
	case len(r.Value)+len(r.State) > int(maxValue):
		failure = &brig.ProgramError{
			Name: "ValueTooLarge", Message: "the function returned more than " + brig.FormatBytes(maxValue) + " of JSON",
			Hint: "write large results to files",
		}
	default:
		c.res.Value, c.res.State = r.Value, r.State
		c.res.Text = r.Text
		if json.Unmarshal(r.Value, &c.res.Text) != nil && r.Text == "" {
			c.res.Text = string(r.Value)
		}
		c.res.Text = tool.Truncate(c.res.Text, c.j.tool.Limit)
		return nil
	}
	if c.report != nil {
		name = cmp.Or(c.report.Name, name)
	}
	if c.res.ExitCode == 0 {
		c.res.ExitCode = 1
	}
	c.res.Error, c.res.Text = failure, tool.ErrorText(name, failure)
	return nil
}

// postMortem says why there was no report.
func (c *toolCall) postMortem(ctx context.Context) (*brig.ProgramError, error) {
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	res, waitErr := c.p.Wait(wctx)
	if waitErr == nil {
		c.res.ExitCode = res.ExitCode
		select {
		case <-c.in.Done():
		case <-time.After(oomTime(res)):
		}
	}
	if gone(c.in) {
		if exit := c.in.Exit(); exit != nil && exit.OOMKilled {
			c.res.ExitCode = 137
			return verdict(&brig.Result{OOMKilled: true}), nil
		}
		if waitErr != nil {
			return nil, waitErr
		}
	}
	switch {
	case c.timedOut.Load():
		c.res.TimedOut, c.res.ExitCode = true, 124
		return &brig.ProgramError{
			Code: brig.Timeout.Code(), Name: "TimeoutError",
			Message: fmt.Sprintf("the function did not return within %v", c.j.tool.Timeout), Hint: "raise its timeout",
		}, nil
	case c.receiver.Garbled || waitErr == nil && res.ExitCode == tool.LostChannel:
		return &brig.ProgramError{Name: "CorruptedOutput", Message: "Function ran, but output is corrupted."}, nil
	case waitErr != nil:
		return nil, waitErr
	case res.Signal != "":
		return &brig.ProgramError{Name: "ProcessDied", Message: "the function's process was ended by " + res.Signal + " before it returned"}, nil
	}
	return &brig.ProgramError{
		Name: "ProcessExited", Message: fmt.Sprintf("the function's process exited with code %d before it returned", res.ExitCode),
	}, nil
}
