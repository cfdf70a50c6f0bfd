package engine

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

// noObserver is what an engine has that was given none.
type noObserver struct{}

func (noObserver) Ran(brig.Ran)                       {}
func (noObserver) Refused(string, brig.Kind)          {}
func (noObserver) Made(brig.Making)                   {}
func (noObserver) Gone(string, brig.ExitReason)       {}
func (noObserver) Restarted(string, string)           {}
func (noObserver) Tried(string, time.Duration, error) {}

// tally counts the executions that go on at this moment, by provider.
type tally struct {
	mu         sync.Mutex // guards the field below
	executions map[string]int
}

// runs notes that n more executions go on.
func (t *tally) runs(provider string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.executions == nil {
		t.executions = map[string]int{}
	}
	t.executions[provider] += n
}

// Load says what goes on at this moment. It is for the wiring: it tells of all
// tenants.
func (e *Engine) Load() brig.Load {
	l := brig.Load{Sandboxes: map[string]int{}, Making: len(e.capacity.making), Waiting: len(e.capacity.waiting)}
	e.tally.mu.Lock()
	l.Executions = maps.Clone(e.tally.executions)
	e.tally.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range e.places {
		l.Sandboxes[at.id]++
	}
	return l
}

// executes says whether an operation is an execution, of which a line is
// written and which is counted.
func executes(op brig.Op) bool {
	return op == brig.OpRun || op == brig.OpExec || op == brig.OpRunCode || op == brig.OpRunTool
}

// expect notes that the call is an execution. Nothing is known of it yet but
// where it is to be.
func (v *visit) expect() {
	if !executes(v.op) {
		return
	}
	v.ran = &brig.Ran{At: v.e.Now().UTC(), Tenant: v.actor.Tenant, Provider: brig.NoProvider, Op: v.op.Name, Language: "command"}
	if v.op == brig.OpRunCode {
		v.ran.Language = "other" // until its context is known
	}
	v.takesPlace(v.rec)
}

// takesPlace says in which sandbox the call's execution is.
func (v *visit) takesPlace(rec *brig.Record) {
	if v.ran == nil || rec == nil {
		return
	}
	v.place, v.ran.Provider, v.ran.Sandbox = rec, rec.Provider, rec.ID
}

// speaks says what language the call's execution is in: callers may name what
// there is not, and must not make words of the metrics.
func (v *visit) speaks(l brig.Language) {
	if v.ran == nil {
		return
	}
	v.ran.Language = "other"
	if lang, ok := interpreter.Lookup(l); ok {
		v.ran.Language = string(lang.Name)
	}
}

// begins notes that the call's execution begins.
func (v *visit) begins() {
	if v.ran == nil {
		return // as when an administrator tries a provider
	}
	v.pauses()
	v.began, v.running = time.Now(), v.ran.Provider
	v.e.tally.runs(v.running, 1)
}

// pauses notes that the execution does not go on where it was: it is over, or
// another provider begins it anew.
func (v *visit) pauses() {
	if v.running != "" {
		v.e.tally.runs(v.running, -1)
		v.running = ""
	}
}

// tells returns what there is to tell of the call's execution, whose line
// somebody writes; nil of what is none.
func (v *visit) tells() *brig.Ran {
	if v.ran == nil {
		return nil
	}
	v.ran.CodeHash, v.lined = v.hash, true
	told := *v.ran
	return &told
}

// ended notes how the call's execution ended.
func (v *visit) ended(took time.Duration, exit int, timedOut, oom, failed bool) {
	if v.ran == nil {
		return
	}
	v.ran.Duration, v.ran.ExitCode = took, exit
	v.ran.Status, v.ran.Kind = howEnded(exit, timedOut, oom, failed)
}

func howEnded(exit int, timedOut, oom, failed bool) (brig.RunStatus, brig.Kind) {
	switch {
	case oom:
		return brig.RunOutOfMemory, brig.OutOfMemory
	case timedOut:
		return brig.RunTimeout, brig.Timeout
	case exit != 0 || failed:
		return brig.RunError, ""
	}
	return brig.RunSuccess, ""
}

// endedAs is ended, of an outcome.
func (v *visit) endedAs(o *brig.Outcome) {
	v.ended(o.Duration, o.ExitCode, o.TimedOut, o.OOMKilled, o.Error != nil)
}

// endedWith is ended, of code in a context, which has no exit code of its own.
func (v *visit) endedWith(r *brig.CodeResult) {
	exit := 0
	switch {
	case r.TimedOut:
		exit = 124
	case r.Error != nil || r.Lost:
		exit = 1
	}
	v.ended(r.Duration, exit, r.TimedOut, false, false)
}

// observed tells of the call when it is over, and bills what it has run.
func (v *visit) observed(ctx context.Context, err error) {
	if err != nil {
		v.e.Observer.Refused(v.op.Name, brig.KindOf(err))
	}
	if v.ran == nil {
		return
	}
	v.pauses()
	if err != nil {
		v.ran.Kind, v.ran.ExitCode = brig.KindOf(err), -1
		v.ran.Status = brig.RunStatusOf(v.ran.Kind)
		if !v.began.IsZero() {
			v.ran.Duration = time.Since(v.began)
		}
	}
	if v.ran.CodeHash = v.hash; !v.began.IsZero() {
		v.e.bill(v.ran, v.account, v.place)
	}
	v.e.Observer.Ran(*v.ran)
	if !v.lined {
		v.e.tellLater(ctx, v.ran)
	}
}

// bill adds what an execution costs to its tenant's usage.
func (e *Engine) bill(r *brig.Ran, a *account, rec *brig.Record) {
	rate, ok := e.Rates[r.Provider]
	if !ok || a == nil || rec == nil {
		return
	}
	r.Cost = rate.Cost(1, r.Duration, rec.Spec.Limits.Memory)
	a.charge(rec.Spec.Labels, r.Cost)
}

// processEnded tells of a background process, and bills it.
func (e *Engine) processEnded(rec *brig.Record, p *process, res *brig.Result, err error) {
	r := &brig.Ran{
		At: p.started, Tenant: rec.Tenant, Provider: rec.Provider, Op: brig.OpStart.Name, Sandbox: rec.ID, Language: "command",
		CodeHash: codeHash(commandLine(p.spec.Command)), Duration: e.Now().Sub(p.started),
	}
	if err != nil {
		r.Kind, r.ExitCode = brig.KindOf(err), -1
		r.Status = brig.RunStatusOf(r.Kind)
	} else {
		r.ExitCode = res.ExitCode
		r.Status, r.Kind = howEnded(res.ExitCode, res.TimedOut, res.OOMKilled, false)
	}
	e.bill(r, p.turn.account(), rec)
	e.Observer.Ran(*r)
	e.tellLater(e.ctx, r)
}

// endStep ends a step of a trace, with the code of what went wrong.
func endStep(s span.Span, err error) {
	if err != nil {
		s.Fail(brig.KindOf(err).Code())
	}
	s.End()
}

// made tells of a machine that is there, or could not be made.
func (e *Engine) made(provider string, what brig.MadeFor, begin time.Time, err error) {
	e.Observer.Made(brig.Making{Provider: provider, For: what, Took: time.Since(begin), Err: err})
}
