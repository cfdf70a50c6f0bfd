package engine

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

// noObserver is the default Observer; it ignores every call.
type noObserver struct{}

func (noObserver) ExecutionEnded(brig.ExecutionReport)         {}
func (noObserver) Refused(string, brig.Kind)                   {}
func (noObserver) InstanceCreated(brig.CreationReport)         {}
func (noObserver) SandboxEnded(string, brig.ExitReason)        {}
func (noObserver) Restarted(string, string)                    {}
func (noObserver) ProviderTested(string, time.Duration, error) {}
func (noObserver) ProviderChecked(string, error)               {}

// executionCounter counts the current executions by provider.
type executionCounter struct {
	mu         sync.Mutex // guards the field below
	executions map[string]int
}

// add adds n to the current executions at a provider.
func (t *executionCounter) add(provider string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.executions == nil {
		t.executions = map[string]int{}
	}
	t.executions[provider] += n
}

// isExecution reports whether an operation is an execution. Executions are counted and logged.
func isExecution(op brig.Op) bool {
	return op == brig.OpRun || op == brig.OpExec || op == brig.OpRunCode || op == brig.OpRunTool
}

// trackExecution records that the call is an execution. At this point only the sandbox may be
// known.
func (v *call) trackExecution() {
	if !isExecution(v.op) {
		return
	}
	v.ran = &brig.ExecutionReport{At: v.e.Now().UTC(), Tenant: v.actor.Tenant, Provider: brig.NoProvider, Op: v.op.Name, Language: "command"}
	if v.op == brig.OpRunCode {
		v.ran.Language = "other" // until the context is known
	}
	v.setSandbox(v.rec)
}

// setSandbox records the sandbox in which the call's execution runs.
func (v *call) setSandbox(rec *brig.Record) {
	if v.ran == nil || rec == nil {
		return
	}
	v.sandbox, v.ran.Provider, v.ran.Sandbox = rec, rec.Provider, rec.ID
}

// setLanguage records the language of the call's execution. An unknown name counts
// as "other", so that callers cannot add labels to the metrics.
func (v *call) setLanguage(l brig.Language) {
	if v.ran == nil {
		return
	}
	v.ran.Language = "other"
	if lang, ok := interpreter.Lookup(l); ok {
		v.ran.Language = string(lang.Name)
	}
}

// markStarted records that the call's execution begins. Its reservations are charged from now on.
func (v *call) markStarted() {
	for _, p := range v.reservations {
		p.Start()
	}
	v.reservations = nil
	if v.ran == nil {
		return // for example when an administrator tests a provider
	}
	v.markStopped()
	v.started, v.running = time.Now(), v.ran.Provider
	v.e.executionCounter.add(v.running, 1)
}

// markStopped records that the execution no longer runs at its provider: it has
// ended, or another provider starts it again.
func (v *call) markStopped() {
	if v.running != "" {
		v.e.executionCounter.add(v.running, -1)
		v.running = ""
	}
}

// executionForLog returns a copy of the call's execution for the caller, which writes
// the log line of the execution. It returns nil if the call is not an
// execution.
func (v *call) executionForLog() *brig.ExecutionReport {
	if v.ran == nil {
		return nil
	}
	v.ran.CodeHash, v.logged = v.hash, true
	copied := *v.ran
	return &copied
}

// setEnd records how the call's execution ended.
func (v *call) setEnd(duration time.Duration, exit int, timedOut, oom, failed bool) {
	if v.ran == nil {
		return
	}
	v.ran.Duration, v.ran.ExitCode = duration, exit
	v.ran.Status, v.ran.Kind = statusOf(exit, timedOut, oom, failed)
}

func statusOf(exit int, timedOut, oom, failed bool) (brig.RunStatus, brig.Kind) {
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

// setOutcome is like setEnd, for an outcome.
func (v *call) setOutcome(o *brig.Outcome) {
	v.setEnd(o.Duration, o.ExitCode, o.TimedOut, o.OOMKilled, o.Error != nil)
}

// setCodeResult is like setEnd, for code in a context, which has no exit code
// of its own.
func (v *call) setCodeResult(r *brig.CodeResult) {
	exit := 0
	switch {
	case r.TimedOut:
		exit = 124
	case r.OOMKilled:
		exit = 137
	case r.Error != nil || r.Lost:
		exit = 1
	}
	v.setEnd(r.Duration, exit, r.TimedOut, r.OOMKilled, false)
}

// report reports a finished call to the observer, and bills its execution.
func (v *call) report(ctx context.Context, err error) {
	if err != nil {
		v.e.Observer.Refused(v.op.Name, brig.KindOf(err))
	}
	if v.ran == nil {
		return
	}
	v.markStopped()
	if err != nil {
		v.ran.Kind, v.ran.ExitCode = brig.KindOf(err), -1
		v.ran.Status = brig.RunStatusOf(v.ran.Kind)
		if !v.started.IsZero() {
			v.ran.Duration = time.Since(v.started)
		}
	}
	if v.ran.CodeHash = v.hash; !v.started.IsZero() {
		v.e.addCost(v.ran, v.account.Account, v.sandbox)
	}
	v.e.Observer.ExecutionEnded(*v.ran)
	if !v.logged {
		v.e.logRunAsync(ctx, v.ran)
	}
}

// addCost adds the cost of an execution to its tenant's usage.
func (g *gate) addCost(r *brig.ExecutionReport, a *quota.Account, rec *brig.Record) {
	rate := g.rateOf(g.backends.Current(), r.Provider)
	if rate == (brig.Rate{}) || a == nil || rec == nil {
		return
	}
	r.Cost = rate.Cost(1, r.Duration, rec.Spec.Limits.Memory)
	a.Charge(rec.Spec.Labels, r.Cost)
}

// reportProcessEnd reports the end of a background process, and bills it.
func (g *gate) reportProcessEnd(rec *brig.Record, p *process, res *brig.Result, err error) {
	if rec.Tenant == "" {
		return // a process of a booting template
	}
	r := &brig.ExecutionReport{
		At: p.started, Tenant: rec.Tenant, Provider: rec.Provider, Op: brig.OpStart.Name, Sandbox: rec.ID, Language: "command",
		CodeHash: codeHash(commandLine(p.spec.Command)), Duration: g.Now().Sub(p.started),
	}
	if err != nil {
		r.Kind, r.ExitCode = brig.KindOf(err), -1
		r.Status = brig.RunStatusOf(r.Kind)
	} else {
		r.ExitCode = res.ExitCode
		r.Status, r.Kind = statusOf(res.ExitCode, res.TimedOut, res.OOMKilled, false)
	}
	g.addCost(r, p.reservation.Account(), rec)
	g.Observer.ExecutionEnded(*r)
	g.logRunAsync(g.ctx, r)
}

// endStep ends a step of a trace, with the error code if the step failed.
func endStep(s span.Span, err error) {
	if err != nil {
		s.Fail(brig.KindOf(err).Code())
	}
	s.End()
}

// Alerts implements brig.Service.
func (g *gate) Alerts(ctx context.Context) ([]brig.Alert, error) {
	return do(ctx, g, brig.OpAlerts, "", func(v *call) ([]brig.Alert, error) {
		if g.Options.Alerts == nil {
			return nil, nil
		}
		return g.Options.Alerts(), nil
	})
}
