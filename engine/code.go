package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

// interpreters runs code in the interpreters of existing sandboxes.
type interpreters struct {
	*gate
	vault     *vault
	lifecycle *lifecycle
	programs  *programs
}

// interruptGrace is how long interrupted code may continue before the engine
// kills its interpreter.
const interruptGrace = 5 * time.Second

// RunCode implements brig.Service. The outcome is recorded, and the context is
// free for the next run, before the caller has read all output.
func (i *interpreters) RunCode(ctx context.Context, name string, code brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outputRelay, on := i.relays.Events(brig.ActorFrom(ctx).Tenant, on, cancel)
	res, err := i.runCode(ctx, name, code, on, outputRelay)
	if unread := outputRelay.Flush(); err == nil && unread != nil {
		return nil, unread
	}
	return res, err
}

// runCode implements RunCode, except for the final flush of the output relay.
func (i *interpreters) runCode(ctx context.Context, name string, code brig.Code, on func(brig.CodeEvent) error, outputRelay *output.Relay) (*brig.CodeResult, error) {
	return doWithDetails(ctx, i.gate, brig.OpRunCode, name, func(v *call) {
		v.addCode(code.Language, code.Source)
		v.buffered = on == nil
	}, func(v *call) (_ *brig.CodeResult, err error) {
		if code, err = i.checkCode(v, code); err != nil {
			return nil, err
		}
		in, releaseUse, err := i.lifecycle.useInstanceFor(ctx, v.rec, code.Timeout)
		if err != nil {
			return nil, err
		}
		defer releaseUse()
		if err := i.screenCell(ctx, v, code); err != nil {
			return nil, err
		}
		reservation, err := v.account.ReserveExec(v.rec.Spec.Labels)
		if err != nil {
			return nil, err
		}
		defer reservation.Release()
		v.reservations = append(v.reservations, reservation)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		reservation.SetStopFunc(cancel)
		c, err := i.contextFor(ctx, v.rec, in, code)
		if err != nil {
			return nil, err
		}
		v.setLanguage(c.info.Spec.Language)
		begin := time.Now()
		release, err := c.queue.wait(ctx)
		if err != nil {
			return nil, reservation.ResultError(err)
		}
		defer release()
		queued := time.Since(begin)
		c.mu.Lock()
		dead := c.session == nil
		c.mu.Unlock()
		if dead {
			i.Observer.Restarted(v.rec.Provider, "interpreter")
			if err := i.startContext(ctx, v.rec, in, c); err != nil {
				return nil, err
			}
		}
		r := newCodeRun(i, v.rec, in, c, v.holdEvents(on))
		r.res.Queued = queued
		outputRelay.SetEndCheck(func() bool { return r.session.HasEnded() || hasEnded(in) })
		v.markStarted()
		cctx, s := span.Start(ctx, "code")
		s.Set("brig.sandbox", string(v.rec.ID))
		s.Set("brig.provider", v.rec.Provider)
		res, err := r.do(cctx, code)
		endStep(s, err)
		failpoint.Hit("code.ran")
		if err = reservation.ResultError(err); err != nil {
			return nil, err
		}
		v.addEnd(res.Duration, res.TimedOut, false)
		v.setCodeResult(res)
		return res, i.lifecycle.renew(context.WithoutCancel(ctx), v.rec, in, 0)
	})
}

func (i *interpreters) checkCode(v *call, code brig.Code) (brig.Code, error) {
	switch {
	case code.Source == "":
		return code, brig.InvalidField("code", "there is no code").WithHint("give the source to run")
	case len(code.Source) > maxCode:
		return code, brig.InvalidField("code", "the code is too long").WithHint("give at most %s; put data into files", brig.FormatBytes(maxCode))
	case code.Context != "" && code.Language != "":
		return code, brig.InvalidField("language", "a context has its language already").WithHint("leave out context_id or language")
	}
	var err error
	if code.Context == "" {
		if code.Language, err = contextLanguage(code.Language); err != nil {
			return code, err
		}
	}
	if code.Timeout, err = v.limitRange.FillTimeout("timeout_ms", code.Timeout); err != nil {
		return code, err
	}
	return code, brig.CheckEnv("env", code.Env)
}

// contextFor returns the context that the caller named, or the default context
// of the language, which it creates if necessary.
func (i *interpreters) contextFor(ctx context.Context, rec *brig.Record, in brig.Instance, code brig.Code) (*codeContext, error) {
	if code.Context != "" {
		return i.findContext(rec, code.Context)
	}
	id := "default-" + string(code.Language)
	if c, err := i.findContext(rec, id); err == nil {
		return c, nil
	}
	return i.newContext(ctx, rec, in, id, brig.ContextSpec{Language: code.Language})
}

// codeRun is one run of code in a context. It is at the head of the context's
// queue.
type codeRun struct {
	e           *interpreters
	rec         *brig.Record
	in          brig.Instance
	c           *codeContext
	session     *interpreter.Session
	onEvent     func(brig.CodeEvent) error
	out, err    *output.Capture
	values      values
	begin       time.Time
	startSent   bool             // the started event has been passed on
	beforeStart []brig.CodeEvent // output that was read before the started event

	mu        sync.Mutex // guards the fields below
	res       brig.CodeResult
	started   bool
	killTimer *time.Timer // kills the interpreter if the code ignores an interrupt
	released  bool        // the interpreter belongs to the next run
	killed    bool        // the interpreter was killed
	signals   sync.WaitGroup
	kills     sync.WaitGroup // attempts to kill the interpreter
}

// holdEvents returns a function that passes events to on, after waiting until
// the intent is written.
func (v *call) holdEvents(on func(brig.CodeEvent) error) func(brig.CodeEvent) error {
	if on == nil {
		return func(brig.CodeEvent) error { return nil }
	}
	return func(ev brig.CodeEvent) error {
		if err := v.awaitIntent(); err != nil {
			return err
		}
		return on(ev)
	}
}

func newCodeRun(e *interpreters, rec *brig.Record, in brig.Instance, c *codeContext, on func(brig.CodeEvent) error) *codeRun {
	limit := rec.Spec.Limits.Output
	r := &codeRun{e: e, rec: rec, in: in, c: c, onEvent: on, out: output.NewCapture(limit), err: output.NewCapture(limit), begin: time.Now()}
	c.mu.Lock()
	r.session = c.session
	c.mu.Unlock()
	r.res = brig.CodeResult{Context: c.info.ID, Started: e.Now().UTC()}
	return r
}

// do runs the code. A timeout or a disconnect of the caller interrupts the
// code; the context persists.
func (r *codeRun) do(ctx context.Context, code brig.Code) (*brig.CodeResult, error) {
	if r.session == nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the context was removed meanwhile")
	}
	source, syntaxErr, err := r.e.compileCell(ctx, r.c.info.Spec.Language, code.Source)
	if syntaxErr != nil {
		r.fail(ctx, *syntaxErr)
		r.res.Duration = time.Since(r.begin)
		return &r.res, nil
	}
	if err != nil {
		return nil, err
	}
	secrets, err := r.e.vault.secretEnv(ctx, r.rec)
	if err != nil {
		return nil, err
	}
	for k := range r.c.info.Spec.Env { // the context's own environment takes precedence
		delete(secrets, k)
	}
	request := interpreter.Request{Op: "cell", Code: source, Uncounted: code.Uncounted, Env: mergeEnv(mergeEnv(r.c.env, secrets), code.Env)}
	wctx := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { r.interrupt(wctx, false) })()
	defer time.AfterFunc(code.Timeout, func() { r.interrupt(wctx, true) }).Stop()
	_, step := span.Start(ctx, "guest.program")
	_, err = r.session.Do(wctx, request, interpreter.Sink{Output: r.newOutputHandler(wctx), Message: r.newMessageHandler(wctx)})
	endStep(step, err)
	r.flush(wctx) // pass on early output that has not been passed on yet
	r.mu.Lock()
	r.released = true
	if r.killTimer != nil {
		r.killTimer.Stop()
	}
	r.mu.Unlock()
	// The next run must not be interrupted. From here on, only this goroutine accesses the result.
	r.signals.Wait()
	r.kills.Wait()
	if err == nil && r.killed {
		err = interpreter.ErrGone // it was killed just after the code had ended
	}
	r.res.Duration = time.Since(r.begin)
	_, _ = r.err.Write(leftOutNote(r.values.omitted)) // Write never fails
	r.res.Outputs = r.values.list
	r.res.Stdout, r.res.Stderr = r.out.Output(), r.err.Output()
	r.c.mu.Lock()
	r.c.info.Count = r.res.Count
	r.c.mu.Unlock()
	if err != nil {
		if err := r.handleLoss(wctx, err); err != nil {
			return nil, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	res := r.res
	return &res, nil
}

// interrupt ends the code. It sends an interrupt, and kills the interpreter if
// the code ignores it.
func (r *codeRun) interrupt(ctx context.Context, timedOut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killTimer != nil || r.released {
		return
	}
	r.res.TimedOut, r.res.Interrupted = timedOut, !timedOut
	r.killTimer = time.AfterFunc(interruptGrace, func() {
		p := runProcess{r.session.Process, r}
		if !r.e.lifecycle.killProgram(r.rec, r.in, p) && !p.isReleased() {
			r.e.lifecycle.endSandbox(r.rec, r.in, 0, brig.AgentLost)
		}
	})
	if r.started {
		r.signals.Go(func() { r.sendInterrupt(ctx) })
	}
}

// runProcess is the interpreter of one run. Attempts to kill an interpreter are repeated, and the
// last attempt must not affect the next run.
type runProcess struct {
	brig.Process
	r *codeRun
}

func (p runProcess) isReleased() bool {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	return p.r.released
}

// Kill implements brig.Process. It does nothing after the run has ended. The end of the run waits
// for an attempt that has begun.
func (p runProcess) Kill(ctx context.Context) error {
	p.r.mu.Lock()
	if p.r.released {
		p.r.mu.Unlock()
		return nil
	}
	p.r.kills.Add(1)
	p.r.mu.Unlock()
	defer p.r.kills.Done()
	err := p.Process.Kill(ctx)
	if err == nil {
		p.r.mu.Lock()
		p.r.killed = true
		p.r.mu.Unlock()
	}
	return err
}

// sendInterrupt interrupts the code. A driver handles signals once it has reported
// that the code has started. An interpreter that ignores the signal is killed
// after interruptGrace.
func (r *codeRun) sendInterrupt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, interruptGrace)
	defer cancel()
	_ = r.session.Signal(ctx, "SIGINT")
}

// newOutputHandler returns the function that passes on one chunk of output.
func (r *codeRun) newOutputHandler(ctx context.Context) func(brig.From, []byte) {
	return func(from brig.From, p []byte) {
		ev := brig.CodeEvent{Stdout: p}
		to := r.out
		if from == brig.FromStderr {
			ev, to = brig.CodeEvent{Stderr: p}, r.err
		}
		_, _ = to.Write(p) // Write never fails
		if r.startSent {
			r.emit(ctx, ev)
			return
		}
		// Output may arrive before the driver's started message.
		ev.Stdout, ev.Stderr = bytes.Clone(ev.Stdout), bytes.Clone(ev.Stderr)
		if r.beforeStart = append(r.beforeStart, ev); len(r.beforeStart) >= maxEarlyChunks {
			r.flush(ctx)
		}
	}
}

// maxEarlyChunks is the number of chunks after which the started message is no longer awaited. Two
// pipes hold fewer chunks, so a driver that has not sent the message by then never does.
const maxEarlyChunks = 16

// flush passes on the output that was read before the started message.
func (r *codeRun) flush(ctx context.Context) {
	r.startSent = true
	for _, ev := range r.beforeStart {
		r.emit(ctx, ev)
	}
	r.beforeStart = nil
}

func (r *codeRun) emit(ctx context.Context, ev brig.CodeEvent) {
	if r.onEvent(ev) != nil {
		r.onEvent = func(brig.CodeEvent) error { return nil }
		r.interrupt(ctx, false)
	}
}

// newMessageHandler returns the function that handles the messages of the driver.
func (r *codeRun) newMessageHandler(ctx context.Context) func(*interpreter.Message) {
	return func(m *interpreter.Message) {
		switch m.Type {
		case "started":
			r.start(ctx, m.Count)
		case "display", "result":
			r.emit(ctx, brig.CodeEvent{Output: r.addValue(m)})
		case "clear":
			r.emit(ctx, brig.CodeEvent{Cleared: &brig.ClearRequest{Wait: m.Wait}})
		case "error":
			r.fail(ctx, brig.CodeError{Name: m.Name, Value: m.Value, Traceback: m.Traceback})
		}
	}
}

// start records that the code has started. Only the first report counts: each signal takes a
// connection to the sandbox, and a driver of an earlier version may report repeatedly, because code
// can write to its channel.
func (r *codeRun) start(ctx context.Context, count int) {
	r.mu.Lock()
	first := !r.started
	if first {
		r.res.Count, r.started = count, true
	}
	started := r.res
	if first && r.killTimer != nil {
		r.signals.Go(func() { r.sendInterrupt(ctx) })
	}
	r.mu.Unlock()
	if first {
		r.emit(ctx, brig.CodeEvent{Started: &started})
		r.flush(ctx)
	}
}

// addValue adds a value to the result if it fits the limits. A caller that follows
// the run receives every value, including those beyond the limits.
func (r *codeRun) addValue(m *interpreter.Message) *brig.Rich {
	r.mu.Lock()
	defer r.mu.Unlock()
	rich := r.values.add(m)
	return &rich
}

// fail records the exception that ended the code. Only the first one counts.
func (r *codeRun) fail(ctx context.Context, failure brig.CodeError) {
	r.mu.Lock()
	first := r.res.Error == nil
	if first {
		r.res.Error = &failure
	}
	r.mu.Unlock()
	if first {
		r.emit(ctx, brig.CodeEvent{Error: &failure})
	}
}

// handleLoss handles the end of an interpreter that was running the code. The context starts a new
// interpreter on its next use.
func (r *codeRun) handleLoss(ctx context.Context, err error) error {
	if errors.As(err, new(*interpreter.RequestError)) {
		return err // the interpreter has received nothing
	}
	if hasEnded(r.in) {
		return r.handleSandboxEnd(ctx, err)
	}
	r.c.mu.Lock()
	restarted := r.c.session != r.session
	if !restarted {
		r.c.session = nil
	}
	r.c.mu.Unlock()
	if restarted {
		return brig.Errorf(brig.FailedPrecondition, "the context was restarted while the code ran").
			WithHint("its variables are lost; run the code again if that is useful")
	}
	if waitErr := r.destroyInterpreter(ctx); waitErr != nil {
		// The instance may have ended without having been reported yet.
		select {
		case <-r.in.Done():
			return r.handleSandboxEnd(ctx, errors.Join(err, waitErr))
		case <-time.After(endReportTimeout):
		}
	}
	r.res.Lost = true
	if v, ok := errors.AsType[*interpreter.ViolationError](err); ok {
		r.res.Error = &brig.CodeError{Name: protocolViolation, Value: v.What + "; the interpreter was ended, and its variables are gone"}
	} else if r.res.TimedOut && !r.started {
		r.res.Error = &brig.CodeError{Name: "InterpreterDied",
			Value: "the code did not start in its time, because the interpreter was busy or other code took its requests; it was killed, and its variables are gone"}
	}
	if r.res.Error == nil {
		value := "the interpreter ended"
		if r.res.TimedOut {
			value = "the code did not heed the interrupt, and its interpreter was killed"
		}
		r.res.Error = &brig.CodeError{Name: "InterpreterDied", Value: value + "; its variables are gone",
			Traceback: strings.TrimSpace(string(r.res.Stderr.Tail))}
	}
	return nil
}

// handleSandboxEnd sets the result of code that ended with its sandbox. It returns an error if the
// sandbox failed.
func (r *codeRun) handleSandboxEnd(ctx context.Context, err error) error {
	err = r.e.lifecycle.explainLoss(ctx, r.rec, r.in, err)
	var end brig.Result
	if !applySandboxExit(&end, r.in) {
		return err
	}
	r.res.Lost, r.res.OOMKilled, r.res.SandboxEnded = true, end.OOMKilled, end.SandboxEnded
	failure := brig.CodeError{Name: "SandboxEnded", Value: fmt.Sprintf("the sandbox ended while the code ran (%s); create a new one", end.SandboxEnded)}
	if observed := observedError(&end); observed != nil {
		failure = brig.CodeError{Name: observed.Name, Value: observed.Message + "; " + observed.Hint}
	}
	r.fail(ctx, failure)
	return nil
}

// protocolViolation is the name of the error that is reported if an interpreter was ended because
// of invalid messages on its channel.
const protocolViolation = "ProtocolViolation"

// destroyInterpreter kills the interpreter and releases its resources.
func (r *codeRun) destroyInterpreter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endReportTimeout)
	defer cancel()
	killed := r.session.Kill(ctx)
	if killed != nil {
		defer r.e.lifecycle.endProgramLater(r.rec, r.in, r.session)
	}
	err := errors.Join(killed, r.in.Keep(ctx, r.session.Process, nil))
	if res, waitErr := r.session.Wait(ctx); waitErr == nil && res.Signal != "" {
		r.res.Error = &brig.CodeError{Name: "InterpreterDied", Value: fmt.Sprintf("the interpreter was ended by %s; its variables are gone", res.Signal)}
	}
	r.session.Close()
	return err
}

// useContext is like useInstance, and also returns one of the sandbox's contexts.
func (i *interpreters) useContext(ctx context.Context, rec *brig.Record, id string) (in brig.Instance, c *codeContext, releaseUse func(), err error) {
	if in, releaseUse, err = i.lifecycle.useInstance(ctx, rec); err != nil {
		return nil, nil, nil, err
	}
	if c, err = i.findContext(rec, id); err != nil {
		releaseUse()
		return nil, nil, nil, err
	}
	return in, c, releaseUse, nil
}
