package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// endReportTimeout is the maximum wait for the report that an instance has ended.
const endReportTimeout = 5 * time.Second

// programRun is one run of a program in an interpreter.
type programRun struct {
	e        *interpreters
	m        *machine
	res      brig.Result
	out      *output.Capture
	err      *output.Capture
	sio      brig.IO
	stopOnce sync.Once
	step     *stepRun // nil unless the program is a step

	mu            sync.Mutex // guards the fields below
	timedOut      bool
	stopRequested bool  // the program was requested to end after its timeout
	ignoredStop   bool  // the program ignored the request
	disconnectErr error // why the caller disconnected
}

// interpret runs a program in the interpreter of its instance. A timeout or a
// disconnect of the caller ends the instance, and with it all processes of the
// program.
func (i *interpreters) interpret(ctx context.Context, m *machine, j *job, sio brig.IO) (*brig.Outcome, error) {
	limit := m.rec.Spec.Limits.Output
	a := &programRun{e: i, m: m, sio: sio, out: output.NewCapture(limit), err: output.NewCapture(limit)}
	a.res = brig.Result{ExecID: newExecID(), Started: i.Now().UTC()}
	if j.request.Op == opStep {
		a.step = &stepRun{packages: j.packages, requested: tool.ParsePipRequirements(j.request.Code)}
	}
	if sio.Started != nil {
		sio.Started(a.res.ExecID)
	}
	a.copyStdin(sio.Stdin)
	begin := time.Now()
	defer context.AfterFunc(ctx, func() { a.stopInstance(context.Cause(ctx), false) })()
	stopTimeout := a.startTimeout(j.cmd.Timeout, j.grace)
	defer stopTimeout()
	_, s := span.Start(ctx, "guest.program")
	end, err := m.session.Do(ctx, j.request, interpreter.Sink{Output: a.sendOutput, Message: func(msg *interpreter.Message) {
		m.program.setPath(msg, j.request.Code)
		a.step.handleMessage(msg)
	}})
	a.res.Duration = time.Since(begin)
	stopTimeout() // the program has ended in time, or the timeout has ended it
	if end != nil && end.Closed || errors.Is(err, interpreter.ErrGone) {
		m.session.ReceiveRest(begin.Add(min(a.res.Duration+wire.TailTimeout, j.cmd.Timeout)), wire.TailSize, a.sendOutput)
	}
	endStep(s, err)
	if a.step != nil && a.step.outputs.omitted > 0 {
		a.sendOutput(brig.FromStderr, leftOutNote(a.step.outputs.omitted))
	}
	a.res.Stdout, a.res.Stderr = a.out.Output(), a.err.Output()
	violation, violated := errors.AsType[*interpreter.ViolationError](err)
	if err := a.setResult(ctx, end, err); err != nil {
		return nil, err
	}
	o := &brig.Outcome{Result: a.res, Sandbox: m.rec.Spec.Name, ID: m.rec.ID}
	o.Step = a.step.outcome(end)
	if o.Error = observedError(&a.res); o.Error == nil && violated {
		o.Error = violationError(violation.What)
	}
	if o.Error != nil || end == nil {
		return o, nil
	}
	if a.step != nil {
		o.Error = a.step.failure
		return o, nil
	}
	o.Value, o.Error = reportedResult(end)
	if end.Artifacts {
		return o, i.collectArtifacts(ctx, m.in, o)
	}
	return o, nil
}

// copyStdin copies the caller's input to the program.
func (a *programRun) copyStdin(stdin io.Reader) {
	w := a.m.session.Stdin()
	if stdin == nil {
		_ = w.Close() // if Close fails, the input has already ended
		return
	}
	go func() {
		_, _ = io.Copy(w, stdin) // the program need not read its input
		_ = w.Close()
	}()
}

// sendOutput handles one chunk of output.
func (a *programRun) sendOutput(from brig.From, p []byte) {
	to, w := a.out, a.sio.Stdout
	if from == brig.FromStderr {
		to, w = a.err, a.sio.Stderr
	}
	_, _ = to.Write(p) // Write never fails
	if w == nil {
		return
	}
	if _, err := w.Write(p); err != nil {
		a.stopInstance(fmt.Errorf("write output: %w", err), false)
	}
}

// startTimeout ends the program after its timeout. With a grace period, it first requests the
// program to end, and kills the program only after the period. end stops the timer.
func (a *programRun) startTimeout(timeout, grace time.Duration) (end func()) {
	session := a.m.session // read now: the engine clears the field when it releases the instance
	done := make(chan struct{})
	timer := time.AfterFunc(timeout, func() {
		if grace == 0 || !a.requestStop(session, grace, done) {
			a.stopInstance(nil, true)
		}
	})
	return sync.OnceFunc(func() {
		timer.Stop()
		close(done)
	})
}

// requestStop requests the program to end, and reports whether the program ended within the grace
// period.
func (a *programRun) requestStop(session *interpreter.Session, grace time.Duration, done <-chan struct{}) bool {
	a.mu.Lock()
	a.stopRequested = true
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.e.ctx), grace)
	defer cancel()
	lost := session.Signal(ctx, "SIGTERM")
	if lost == nil {
		select {
		case <-done:
			return true
		case <-ctx.Done():
		}
	}
	select {
	case <-done:
		return true
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ignoredStop = lost == nil
	return false
}

// stopInstance ends the instance while the program runs. Further calls do
// nothing.
func (a *programRun) stopInstance(cause error, timedOut bool) {
	a.stopOnce.Do(func() {
		a.mu.Lock()
		a.disconnectErr, a.timedOut = cause, timedOut
		a.mu.Unlock()
		go a.e.lifecycle.stopUntilEnded(a.m.rec.ID, a.m.in, brig.Killed)
	})
}

// setResult sets the outcome of the program, from the program's final message
// or, without such a message, from the host's observations.
func (a *programRun) setResult(ctx context.Context, end *interpreter.Message, err error) error {
	a.mu.Lock()
	timedOut, stopRequested, ignored, disconnectErr := a.timedOut, a.stopRequested, a.ignoredStop, a.disconnectErr
	a.mu.Unlock()
	switch {
	case disconnectErr != nil:
		return disconnectErr
	case err == nil && !stopRequested:
		a.res.Done, a.res.ExitCode = true, end.Code&0xff
		if end.Signal > 0 && a.res.ExitCode == 128+end.Signal {
			a.res.Signal = unix.SignalName(syscall.Signal(end.Signal))
		}
		return nil
	case errors.As(err, new(*interpreter.ViolationError)):
		a.stopInstance(nil, false)
		a.res.Done, a.res.ExitCode, a.res.Signal = true, 137, "SIGKILL"
		return nil
	case err != nil && !errors.Is(err, interpreter.ErrGone):
		return err
	case timedOut || stopRequested:
		a.res.Done, a.res.TimedOut, a.res.ExitCode = true, true, 124
		if ignored {
			a.res.Signal = "SIGKILL"
		}
		return nil
	}
	return a.diagnoseEnd(ctx, err)
}

// diagnoseEnd determines why an interpreter ended without a final message:
// either the interpreter or its instance was killed.
func (a *programRun) diagnoseEnd(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, endReportTimeout)
	defer cancel()
	res, waitErr := a.m.session.Wait(ctx)
	if waitErr == nil {
		a.res.Done, a.res.ExitCode, a.res.Signal = true, res.ExitCode, res.Signal
		// The kernel may have killed one process of the sandbox because of its memory use. In this
		// case the other processes end shortly afterwards.
		select {
		case <-a.m.in.Done():
		case <-time.After(oomReportDelay(res)):
			return nil
		}
	}
	select {
	case <-a.m.in.Done():
	case <-ctx.Done():
		return errors.Join(err, waitErr)
	}
	exit := a.m.in.Exit()
	if exit != nil && exit.OOMKilled {
		a.res.Done, a.res.OOMKilled, a.res.ExitCode, a.res.Signal = true, true, 137, "SIGKILL"
		return nil
	}
	if waitErr == nil {
		return nil
	}
	return errors.Join(err, waitErr)
}

// oomReportDelay returns the maximum delay between the end of an interpreter
// and the report that its instance reached its memory limit. It is zero unless
// SIGKILL ended the interpreter.
func oomReportDelay(res *brig.Result) time.Duration {
	if res.Signal == "SIGKILL" {
		return 100 * time.Millisecond
	}
	return 0
}

// observedError returns the error that the host observed, or nil.
func observedError(r *brig.Result) *brig.ProgramError {
	switch {
	case r.OOMKilled:
		return &brig.ProgramError{
			Code: brig.OutOfMemory.Code(), Name: string(brig.OutOfMemory),
			Message: "the program exceeded its memory limit", Hint: "raise limits.memory",
		}
	case r.TimedOut:
		return &brig.ProgramError{
			Code: brig.Timeout.Code(), Name: string(brig.Timeout),
			Message: fmt.Sprintf("the program timed out after %v", r.Duration.Round(time.Millisecond)),
			Hint:    "raise timeout_ms",
		}
	}
	return nil
}

// violationError returns the error of a program that wrote to the channel of its interpreter's
// driver.
func violationError(what string) *brig.ProgramError {
	return &brig.ProgramError{
		Code: brig.FailedPrecondition.Code(), Name: protocolViolation, Message: what,
		Hint: "use only the standard streams, and descriptors that the program itself has opened",
	}
}

// reportedResult returns the result that the program reported: the value of its main
// function, or its error.
func reportedResult(end *interpreter.Message) (json.RawMessage, *brig.ProgramError) {
	switch {
	case end.Failure != nil:
		return nil, &brig.ProgramError{Name: end.Failure.Name, Message: end.Failure.Message, Traceback: end.Failure.Traceback}
	case len(end.Returned) > maxValue:
		return nil, &brig.ProgramError{
			Name: "ValueTooLarge", Message: "main returned more than " + brig.FormatBytes(maxValue) + " of JSON",
			Hint: "write large results to files in artifacts/",
		}
	}
	return end.Returned, nil
}

// collectArtifacts copies the artifacts out of an instance that is still
// running.
func (i *interpreters) collectArtifacts(ctx context.Context, in brig.Instance, o *brig.Outcome) error {
	if o.OOMKilled || o.TimedOut {
		return nil
	}
	ctx, s := span.Start(ctx, "collect")
	defer s.End()
	files, skipped, err := in.Collect(ctx, artifactsDir)
	if err != nil && hasEnded(in) {
		return nil // the program ended its sandbox
	}
	if err != nil {
		return err
	}
	o.Artifacts, o.Skipped = files, skipped
	return nil
}
