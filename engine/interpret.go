package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// stopTime bounds how long it may take to be told that a machine has ended.
const stopTime = 5 * time.Second

// attempt is one program on its way through an interpreter.
type attempt struct {
	e        *Engine
	m        *machine
	res      brig.Result
	out      *capture
	err      *capture
	sio      brig.IO
	stopOnce sync.Once
	step     *stepRun // nil for a program

	mu       sync.Mutex // guards the fields below
	timedOut bool
	asked    bool  // to end, its time being over
	deaf     bool  // to that
	gone     error // of the caller
}

// interpret has a program run by the interpreter of its machine. Time that
// runs out, and a caller who goes away, end the machine: nothing that the
// program started can outlive that.
func (e *Engine) interpret(ctx context.Context, m *machine, j *job, sio brig.IO) (*brig.Outcome, error) {
	limit := m.rec.Spec.Limits.Output
	a := &attempt{e: e, m: m, sio: sio, out: newCapture(limit), err: newCapture(limit)}
	a.res = brig.Result{ExecID: newExecID(), Started: e.Now().UTC()}
	if j.order.Op == opStep {
		a.step = &stepRun{packages: j.packages, asked: tool.Asked(j.order.Code)}
	}
	if sio.Started != nil {
		sio.Started(a.res.ExecID)
	}
	a.feed(sio.Stdin)
	begin := time.Now()
	defer context.AfterFunc(ctx, func() { a.stop(context.Cause(ctx), false) })()
	defer a.clock(j.cmd.Timeout, j.grace)()
	_, s := span.Start(ctx, "guest.program")
	end, err := m.session.Do(j.order, interpreter.Sink{Output: a.output, Message: a.step.message})
	a.res.Duration = time.Since(begin)
	endStep(s, err)
	a.res.Stdout, a.res.Stderr = a.out.output(), a.err.output()
	if err := a.conclude(ctx, end, err); err != nil {
		return nil, err
	}
	o := &brig.Outcome{Result: a.res, Sandbox: m.rec.Spec.Name, ID: m.rec.ID}
	o.Step = a.step.outcome(end)
	if o.Error = verdict(&a.res); o.Error != nil || end == nil {
		return o, nil
	}
	if a.step != nil {
		o.Error = a.step.failure
		return o, nil
	}
	o.Value, o.Error = returned(end)
	if end.Artifacts {
		return o, e.collect(ctx, m.in, o)
	}
	return o, nil
}

// feed gives the program its input.
func (a *attempt) feed(stdin io.Reader) {
	w := a.m.session.Stdin()
	if stdin == nil {
		_ = w.Close() // an input that cannot be closed has ended
		return
	}
	go func() {
		_, _ = io.Copy(w, stdin) // a program need not read its input
		_ = w.Close()
	}()
}

// output takes a part of the output.
func (a *attempt) output(from brig.From, p []byte) {
	to, w := a.out, a.sio.Stdout
	if from == brig.FromStderr {
		to, w = a.err, a.sio.Stderr
	}
	_, _ = to.Write(p) // it never fails
	if w == nil {
		return
	}
	if _, err := w.Write(p); err != nil {
		a.stop(fmt.Errorf("write output: %w", err), false)
	}
}

// clock ends the program when its time is over: at once, or when it has been
// asked to and did not. What it returns ends the clock.
func (a *attempt) clock(timeout, grace time.Duration) (end func()) {
	session := a.m.session // the machine's own, as long as nobody has let it go
	over := make(chan struct{})
	timer := time.AfterFunc(timeout, func() {
		if grace == 0 || !a.ask(session, grace, over) {
			a.stop(nil, true)
		}
	})
	return func() {
		timer.Stop()
		close(over)
	}
}

// ask asks the program to end, and reports whether it is over before its grace
// is.
func (a *attempt) ask(session *interpreter.Session, grace time.Duration, over <-chan struct{}) bool {
	a.mu.Lock()
	a.asked = true
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.e.ctx), grace)
	defer cancel()
	lost := session.Signal(ctx, "SIGTERM")
	if lost == nil {
		select {
		case <-over:
			return true
		case <-ctx.Done():
		}
	}
	select {
	case <-over:
		return true
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaf = lost == nil
	return false
}

// stop ends the machine under the program, once.
func (a *attempt) stop(gone error, timedOut bool) {
	a.stopOnce.Do(func() {
		a.mu.Lock()
		a.gone, a.timedOut = gone, timedOut
		a.mu.Unlock()
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(a.e.ctx), cleanupTime)
			defer cancel()
			if err := a.m.in.Stop(ctx, 0, brig.Killed); err != nil {
				a.e.Log.ErrorContext(ctx, "stop a one-shot", "sandbox", a.m.rec.ID, "err", err)
			}
		}()
	})
}

// conclude says how the program ended: by its own word, or by what the host
// knows when that did not come.
func (a *attempt) conclude(ctx context.Context, end *interpreter.Message, err error) error {
	a.mu.Lock()
	timedOut, asked, deaf, gone := a.timedOut, a.asked, a.deaf, a.gone
	a.mu.Unlock()
	switch {
	case gone != nil:
		return gone
	case err == nil && !asked:
		a.res.Done, a.res.ExitCode = true, end.Code&0xff
		return nil
	case err != nil && !errors.Is(err, interpreter.ErrGone):
		return err
	case timedOut || asked:
		a.res.Done, a.res.TimedOut, a.res.ExitCode = true, true, 124
		if deaf {
			a.res.Signal = "SIGKILL"
		}
		return nil
	}
	return a.postMortem(ctx, err)
}

// postMortem finds out why an interpreter ended without a word: it was killed,
// or its machine was.
func (a *attempt) postMortem(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	res, waitErr := a.m.session.Wait(ctx)
	if waitErr == nil {
		a.res.Done, a.res.ExitCode, a.res.Signal = true, res.ExitCode, res.Signal
		// The kernel may have killed one process of the sandbox for its
		// memory, which ends the rest of it in a moment.
		select {
		case <-a.m.in.Done():
		case <-time.After(oomTime(res)):
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

// oomTime is how long after an interpreter's end its machine may turn out to
// have hit its memory limit: only a SIGKILL looks like that.
func oomTime(res *brig.Result) time.Duration {
	if res.Signal == "SIGKILL" {
		return 100 * time.Millisecond
	}
	return 0
}

// verdict says what the host says went wrong.
func verdict(r *brig.Result) *brig.ProgramError {
	switch {
	case r.OOMKilled:
		return &brig.ProgramError{
			Code: brig.OutOfMemory.Code(), Name: string(brig.OutOfMemory),
			Message: "the program used more memory than it may", Hint: "raise limits.memory",
		}
	case r.TimedOut:
		return &brig.ProgramError{
			Code: brig.Timeout.Code(), Name: string(brig.Timeout),
			Message: fmt.Sprintf("the program did not end within its time (%v)", r.Duration.Round(time.Millisecond)),
			Hint:    "raise timeout_ms",
		}
	}
	return nil
}

// returned says what a program says: the value of its main, or how it failed.
func returned(end *interpreter.Message) (json.RawMessage, *brig.ProgramError) {
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
