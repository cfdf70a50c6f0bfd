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
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

// heedTime is how long code that was interrupted may take to end, before its
// interpreter is killed under it.
const heedTime = 5 * time.Second

// RunCode implements brig.Service.
func (e *Engine) RunCode(ctx context.Context, name string, code brig.Code, on func(brig.CodeEvent) error) (_ *brig.CodeResult, err error) {
	v, err := e.enter(ctx, brig.OpRunCode, name, func(v *visit) {
		v.sayCode(code.Language, code.Source)
		v.mute = on == nil
	})
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if code, err = e.checkCode(v, code); err != nil {
		return nil, err
	}
	in, rest, err := e.occupy(ctx, v.rec, code.Timeout)
	if err != nil {
		return nil, err
	}
	defer rest()
	if err := e.screenCell(ctx, v, code); err != nil {
		return nil, err
	}
	turn, err := v.account.begin(v.rec.Spec.Labels)
	if err != nil {
		return nil, err
	}
	defer turn.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turn.endsBy(cancel)
	c, err := e.contextFor(ctx, v.rec, in, code)
	if err != nil {
		return nil, err
	}
	v.speaks(c.told.Spec.Language)
	begin := time.Now()
	leave, err := c.line.join(ctx)
	if err != nil {
		return nil, turn.verdict(err)
	}
	defer leave()
	queued := time.Since(begin)
	c.mu.Lock()
	dead := c.session == nil
	c.mu.Unlock()
	if dead {
		e.Observer.Restarted(v.rec.Provider, "interpreter")
		if err := e.startContext(ctx, v.rec, in, c); err != nil {
			return nil, err
		}
	}
	r := newCodeRun(e, v.rec, in, c, v.withholdEvents(on))
	r.res.Queued = queued
	v.begins()
	cctx, s := span.Start(ctx, "code")
	s.Set("brig.sandbox", string(v.rec.ID))
	s.Set("brig.provider", v.rec.Provider)
	res, err := r.do(cctx, code)
	endStep(s, err)
	failpoint.Hit("code.ran")
	if err = turn.verdict(err); err != nil {
		return nil, err
	}
	v.sayEnd(res.Duration, res.TimedOut, false)
	v.endedWith(res)
	return res, e.renew(context.WithoutCancel(ctx), v.rec, in, 0)
}

func (e *Engine) checkCode(v *visit, code brig.Code) (brig.Code, error) {
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
	if code.Timeout, err = v.bounds.FillTimeout("timeout_ms", code.Timeout); err != nil {
		return code, err
	}
	return code, brig.CheckEnv("env", code.Env)
}

// contextFor finds the context that code is for, or makes the default one of
// its language.
func (e *Engine) contextFor(ctx context.Context, rec *brig.Record, in brig.Instance, code brig.Code) (*codeContext, error) {
	if code.Context != "" {
		return e.context(rec.ID, code.Context)
	}
	id := "default-" + string(code.Language)
	if c, err := e.context(rec.ID, id); err == nil {
		return c, nil
	}
	return e.newContext(ctx, rec, in, id, brig.ContextSpec{Language: code.Language})
}

// codeRun is one run of code in a context, whose turn it is.
type codeRun struct {
	e        *Engine
	rec      *brig.Record
	in       brig.Instance
	c        *codeContext
	session  *interpreter.Session
	on       func(brig.CodeEvent) error
	out, err *capture
	size     int // of the outputs
	begin    time.Time
	begun    bool             // the caller has been told so
	early    []brig.CodeEvent // output that was read before that

	mu      sync.Mutex // guards the fields below
	res     brig.CodeResult
	started bool
	hit     *time.Timer // kills what does not heed an interrupt
	over    bool        // the interpreter belongs to whoever comes next
	signals sync.WaitGroup
}

// withholdEvents returns on, which nobody tells before the intent is on record.
func (v *visit) withholdEvents(on func(brig.CodeEvent) error) func(brig.CodeEvent) error {
	if on == nil {
		return func(brig.CodeEvent) error { return nil }
	}
	return func(ev brig.CodeEvent) error {
		if err := v.recorded(); err != nil {
			return err
		}
		return on(ev)
	}
}

func newCodeRun(e *Engine, rec *brig.Record, in brig.Instance, c *codeContext, on func(brig.CodeEvent) error) *codeRun {
	limit := rec.Spec.Limits.Output
	r := &codeRun{e: e, rec: rec, in: in, c: c, on: on, out: newCapture(limit), err: newCapture(limit), begin: time.Now()}
	c.mu.Lock()
	r.session = c.session
	c.mu.Unlock()
	r.res = brig.CodeResult{Context: c.told.ID, Started: e.Now().UTC()}
	return r
}

// do runs the code. Time that runs out and a caller who goes away interrupt
// it; the context lives on.
func (r *codeRun) do(ctx context.Context, code brig.Code) (*brig.CodeResult, error) {
	if r.session == nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the context was removed meanwhile")
	}
	source, wrong, err := r.e.compileCell(ctx, r.c.told.Spec.Language, code.Source)
	if wrong != nil {
		r.fail(ctx, *wrong)
		r.res.Duration = time.Since(r.begin)
		return &r.res, nil
	}
	if err != nil {
		return nil, err
	}
	secrets, err := r.e.secretEnv(ctx, r.rec)
	if err != nil {
		return nil, err
	}
	for k := range r.c.told.Spec.Env { // what the context was made with wins
		delete(secrets, k)
	}
	order := interpreter.Order{Op: "cell", Code: source, Env: layer(layer(r.c.env, secrets), code.Env)}
	wctx := context.WithoutCancel(ctx)
	defer context.AfterFunc(ctx, func() { r.interrupt(wctx, false) })()
	defer time.AfterFunc(code.Timeout, func() { r.interrupt(wctx, true) }).Stop()
	_, step := span.Start(ctx, "guest.program")
	_, err = r.session.Do(order, interpreter.Sink{Output: r.output(wctx), Message: r.message(wctx)})
	endStep(step, err)
	r.flush(wctx) // at the latest
	r.mu.Lock()
	r.over = true
	if r.hit != nil {
		r.hit.Stop()
	}
	r.mu.Unlock()
	// What comes next is not to be interrupted. The result is this
	// goroutine's alone from here on.
	r.signals.Wait()
	r.res.Duration = time.Since(r.begin)
	r.res.Stdout, r.res.Stderr = r.out.output(), r.err.output()
	r.c.mu.Lock()
	r.c.told.Count = r.res.Count
	r.c.mu.Unlock()
	if err != nil {
		if err := r.lost(wctx, err); err != nil {
			return nil, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	res := r.res
	return &res, nil
}

// interrupt ends the code: gently, and if that is not heeded by killing the
// interpreter.
func (r *codeRun) interrupt(ctx context.Context, timedOut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hit != nil || r.over {
		return
	}
	r.res.TimedOut, r.res.Interrupted = timedOut, !timedOut
	r.hit = time.AfterFunc(heedTime, func() {
		if err := r.session.Kill(ctx); err != nil {
			r.e.Log.ErrorContext(ctx, "kill an interpreter", "context", r.c.told.ID, "err", err)
		}
	})
	if r.started {
		r.signals.Go(func() { r.signal(ctx) })
	}
}

// signal interrupts the code. A driver hears it from its word that the code
// has started; one that does not is killed in the end.
func (r *codeRun) signal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, heedTime)
	defer cancel()
	_ = r.session.Signal(ctx, "SIGINT")
}

// output passes on a part of the output.
func (r *codeRun) output(ctx context.Context) func(brig.From, []byte) {
	return func(from brig.From, p []byte) {
		ev := brig.CodeEvent{Stdout: p}
		to := r.out
		if from == brig.FromStderr {
			ev, to = brig.CodeEvent{Stderr: p}, r.err
		}
		_, _ = to.Write(p) // it never fails
		if r.begun {
			r.tell(ctx, ev)
			return
		}
		// The pipes may be read before the driver's word that it has begun.
		ev.Stdout, ev.Stderr = bytes.Clone(ev.Stdout), bytes.Clone(ev.Stderr)
		if r.early = append(r.early, ev); len(r.early) >= maxEarly {
			r.flush(ctx)
		}
	}
}

// maxEarly is more parts of the output than two pipes hold: a driver that has
// not said by then that it has begun is not going to.
const maxEarly = 16

// flush passes on what was read too early.
func (r *codeRun) flush(ctx context.Context) {
	r.begun = true
	for _, ev := range r.early {
		r.tell(ctx, ev)
	}
	r.early = nil
}

func (r *codeRun) tell(ctx context.Context, ev brig.CodeEvent) {
	if r.on(ev) != nil {
		r.on = func(brig.CodeEvent) error { return nil }
		r.interrupt(ctx, false)
	}
}

// message passes on what the driver says.
func (r *codeRun) message(ctx context.Context) func(*interpreter.Message) {
	return func(m *interpreter.Message) {
		switch m.Type {
		case "started":
			r.mu.Lock()
			r.res.Count, r.started = m.Count, true
			started := r.res
			if r.hit != nil {
				r.signals.Go(func() { r.signal(ctx) })
			}
			r.mu.Unlock()
			r.tell(ctx, brig.CodeEvent{Started: &started})
			r.flush(ctx)
		case "display", "result":
			r.tell(ctx, brig.CodeEvent{Output: r.keep(m)})
		case "error":
			r.fail(ctx, brig.CodeError{Name: m.Name, Value: m.Value, Traceback: m.Traceback})
		}
	}
}

// keep adds a value to the result, within bounds. Who follows the run is told
// of all of them: they are not kept for it.
func (r *codeRun) keep(m *interpreter.Message) *brig.Rich {
	r.mu.Lock()
	defer r.mu.Unlock()
	rich, size := richOf(m)
	if fits(rich, len(r.res.Outputs), r.size+size) {
		r.size += size
		r.res.Outputs = append(r.res.Outputs, rich)
	}
	return &rich
}

// fail notes the exception that ended the code, once.
func (r *codeRun) fail(ctx context.Context, failure brig.CodeError) {
	r.mu.Lock()
	first := r.res.Error == nil
	if first {
		r.res.Error = &failure
	}
	r.mu.Unlock()
	if first {
		r.tell(ctx, brig.CodeEvent{Error: &failure})
	}
}

// lost deals with an interpreter that ended under the code. The context starts
// another when it is used again.
func (r *codeRun) lost(ctx context.Context, err error) error {
	if gone(r.in) {
		return r.e.lost(ctx, r.rec, r.in, err)
	}
	r.c.mu.Lock()
	restarted := r.c.session != r.session
	if !restarted {
		r.c.session = nil
	}
	r.c.mu.Unlock()
	if restarted {
		return brig.Errorf(brig.FailedPrecondition, "the context was restarted while the code ran").
			WithHint("its variables are gone; run the code again if it still makes sense")
	}
	value := "the interpreter ended"
	if waitErr := r.bury(ctx); waitErr != nil {
		// The machine may have died and not be known to have yet.
		select {
		case <-r.in.Done():
			return r.e.lost(ctx, r.rec, r.in, errors.Join(err, waitErr))
		case <-time.After(stopTime):
		}
	}
	if r.res.TimedOut {
		value = "the code did not heed the interrupt, and its interpreter was killed"
	}
	r.res.Lost = true
	if r.res.Error == nil {
		r.res.Error = &brig.CodeError{Name: "InterpreterDied", Value: value + "; its variables are gone",
			Traceback: strings.TrimSpace(string(r.res.Stderr.Tail))}
	}
	return nil
}

// bury makes sure that nothing is left of an interpreter.
func (r *codeRun) bury(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	err := errors.Join(r.session.Kill(ctx), r.in.Keep(ctx, r.session.Process, nil))
	if res, waitErr := r.session.Wait(ctx); waitErr == nil && res.Signal != "" {
		r.res.Error = &brig.CodeError{Name: "InterpreterDied", Value: fmt.Sprintf("the interpreter was ended by %s; its variables are gone", res.Signal)}
	}
	r.session.Close()
	return err
}
