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
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/tool"
)

// toolGrace is the time that a tool has to exit after its timeout.
const toolGrace = 5 * time.Second

// callTool makes a call in a box. The box is sound if no process of the call
// remains in it.
func (ts *tools) callTool(ctx context.Context, v *call, b *heldBox, j *toolJob) (_ *brig.ToolResult, reusable bool, err error) {
	rec, in := b.rec, b.in
	v.id = rec.ID
	v.setSandbox(rec)
	cmd := applySandboxDefaults(rec.Spec, brig.Command{Argv: tool.Argv(j.tool.Language), Env: j.env})
	p, err := in.Start(ctx, newExecID(), cmd, brig.Streams{Channel: true})
	if err != nil {
		return nil, false, ts.lifecycle.explainLoss(ctx, rec, in, interpreterStartError(rec, j.tool.Language, err))
	}
	ts.limitMessages(p, rec.Tenant)
	v.markStarted()
	c := &toolCall{e: ts, j: j, in: in, p: p, exclusive: ts.images.templates[rec.Spec.Template].Start == nil, limit: rec.Spec.Limits.Output, log: output.NewLogTee(in.Log, rec.Spec.Limits.Output)}
	err = c.do(ctx)
	reusable = c.end(ctx) && err == nil
	if err != nil {
		return nil, false, ts.lifecycle.explainLoss(ctx, rec, in, err)
	}
	c.res.Name, c.res.Sandbox, c.res.Reused, c.res.Fingerprint = j.tool.Name, b.name, b.reused, j.fingerprint
	if !reusable {
		return &c.res, false, nil
	}
	// Renew the lease from now, instead of from the latest possible end of the
	// call.
	if _, err := ts.lifecycle.setLease(context.WithoutCancel(ctx), rec, in, ts.Now().Add(rec.Spec.TTL)); err != nil {
		ts.Log.WarnContext(ctx, "failed to renew the lease of a sandbox for tools", "sandbox", rec.ID, "err", err)
		reusable = false
	}
	return &c.res, reusable, nil
}

// interpreterStartError explains why a driver did not start. Usually, the image has no interpreter.
func interpreterStartError(rec *brig.Record, l brig.Language, err error) error {
	if brig.AsError(err).Field != "command" {
		return err
	}
	return brig.InvalidField("source_type", "image %q has no interpreter of %s", rec.Spec.Image, l).
		WithHint("choose a template that has it").Because(err)
}

// toolCall is one call of a function.
type toolCall struct {
	e         *tools
	j         *toolJob
	in        brig.Instance
	p         brig.Process
	exclusive bool // whether no other program runs in the box
	limit     int64
	log       *output.LogTee

	timedOut atomic.Bool
	receiver tool.Receiver
	report   *tool.Report
	res      brig.ToolResult
}

// do calls the function, and returns when its report has arrived or can no
// longer arrive. After a timeout it sends SIGTERM, and kills the program if it
// does not exit. If the caller disconnects, it kills the program.
func (c *toolCall) do(ctx context.Context) error {
	begin := time.Now()
	out, errs := output.NewCapture(c.limit), output.NewCapture(c.limit)
	wctx := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { c.kill(wctx) })()
	var late atomic.Pointer[time.Timer]
	clock := time.AfterFunc(c.j.tool.Timeout, func() {
		c.timedOut.Store(true)
		late.Store(time.AfterFunc(toolGrace, func() { c.kill(wctx) }))
		sctx, cancel := context.WithTimeout(wctx, toolGrace)
		defer cancel()
		_ = c.p.Signal(sctx, "SIGTERM") // a program that ignores the signal is killed
	})
	defer func() {
		clock.Stop()
		if t := late.Load(); t != nil {
			t.Stop()
		}
	}()
	_ = c.p.Stdin().Close() // it fails only if the input has ended
	err := c.exchange(out, errs)
	c.res.Duration = time.Since(begin)
	c.res.Stdout, c.res.Stderr = out.Output(), errs.Output()
	if lost := c.log.Finish(c.res.Stdout, c.res.Stderr); lost != nil {
		c.e.Log.ErrorContext(ctx, "failed to write the log of a sandbox", "err", lost)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return c.setResult(ctx)
}

// exchange sends the request and reads the output until the report arrives.
func (c *toolCall) exchange(out, errs io.Writer) error {
	c.receiver.Key = tool.NewKey()
	c.j.request.Key = c.receiver.Key.String()
	request, err := json.Marshal(c.j.request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if err := c.p.Send(request); err != nil && !errors.Is(err, net.ErrClosed) {
		// The program has ended or does not read. Read its output anyway.
		c.e.Log.Debug("failed to send a request to a tool", "err", err)
	}
	stdout, stderr := output.Tee(out, c.log.Stream()), output.Tee(errs, c.log.Stream())
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
			_, _ = stdout.Write(b) // Write never fails
		default:
			_, _ = stderr.Write(b) // as above
		}
	}
	return nil
}

// kill ends the program and all processes that it started.
func (c *toolCall) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endReportTimeout)
	defer cancel()
	if err := c.p.Kill(ctx); err != nil {
		c.e.Log.DebugContext(ctx, "failed to kill a tool", "err", err)
		_ = c.p.Close() // so that exchange stops waiting
	}
}

// end ends all processes of the call, and reports whether none remains.
func (c *toolCall) end(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endReportTimeout)
	defer cancel()
	killed := c.p.Kill(ctx)
	_, waited := c.p.Wait(ctx)
	_ = c.p.Close() // the process has ended
	if killed != nil || waited != nil || hasEnded(c.in) {
		return false
	}
	if c.exclusive {
		return c.in.Quiet(ctx, 0) == nil
	}
	// Kill finds the process tree by its first process, which stays alive after
	// its report.
	return c.report != nil
}

// setResult sets the result of the call from the function's report. If there is
// no report, it uses the engine's observations.
func (c *toolCall) setResult(ctx context.Context) error {
	name := cmp.Or(c.j.tool.Name, tool.FindLastFunction(c.j.tool.Source))
	var failure *brig.ProgramError
	switch r := c.report; {
	case r == nil:
		var err error
		if failure, err = c.diagnoseEnd(ctx); err != nil {
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

// diagnoseEnd returns the reason for a missing report.
func (c *toolCall) diagnoseEnd(ctx context.Context) (*brig.ProgramError, error) {
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endReportTimeout)
	defer cancel()
	res, waitErr := c.p.Wait(wctx)
	if waitErr == nil {
		c.res.ExitCode = res.ExitCode
		select {
		case <-c.in.Done():
		case <-time.After(oomReportDelay(res)):
		}
	}
	if hasEnded(c.in) {
		if exit := c.in.Exit(); exit != nil && exit.OOMKilled {
			c.res.ExitCode = 137
			return observedError(&brig.Result{OOMKilled: true}), nil
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
	case c.receiver.Garbled || waitErr == nil && res.ExitCode == tool.ExitLostChannel:
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
