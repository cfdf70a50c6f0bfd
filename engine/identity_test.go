package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/provider/fake"
)

// forgingProvider creates instances whose agents report executions that the
// test sets.
type forgingProvider struct {
	*fake.Provider
	execs map[brig.ID]*atomic.Pointer[[]*brig.Execution]
}

type forgedInstance struct {
	brig.Instance
	execs *atomic.Pointer[[]*brig.Execution]
}

// Create implements brig.Provider.
func (p *forgingProvider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	in, err := p.Provider.Create(ctx, id, spec, lease)
	if err != nil {
		return nil, err
	}
	p.execs[id] = &atomic.Pointer[[]*brig.Execution]{}
	return &forgedInstance{in, p.execs[id]}, nil
}

// Execs implements brig.Instance.
func (in *forgedInstance) Execs(ctx context.Context) ([]*brig.Execution, error) {
	if says := in.execs.Load(); says != nil {
		return *says, nil
	}
	return in.Instance.Execs(ctx)
}

// An agent's response is attributed to the sandbox of its connection, regardless of
// its content. An agent that reports the end of another sandbox's execution neither
// affects that execution nor creates a new one.
func TestConnectionIdentifiesSandbox(t *testing.T) {
	p := &forgingProvider{Provider: &fake.Provider{}, execs: map[brig.ID]*atomic.Pointer[[]*brig.Execution]{}}
	h := newFixture(t, func(o *engine.Options) { o.Provider = p })
	acme := withRole(t, brig.Member)
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Member})
	start := func(ctx context.Context, name string) (brig.ID, string) {
		t.Helper()
		box, err := h.Create(ctx, brig.Spec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		id := make(chan string, 1)
		go func() {
			_, _ = h.Exec(ctx, name, brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{Started: func(s string) { id <- s }})
		}()
		return box.ID, <-id
	}
	victim, victimExec := start(acme, "victim")
	liar, liarExec := start(rival, "liar")
	end := func(box brig.ID, exec string) *brig.Execution {
		return &brig.Execution{Sandbox: box, Command: brig.Command{Argv: []string{"forged"}}, Result: brig.Result{ExecID: exec, Done: true, ExitCode: 66}}
	}
	for name, forged := range map[string]*brig.Execution{
		"another's execution":                    end(liar, victimExec),
		"another's execution as another sandbox": end(victim, victimExec),
		"its own, as another sandbox":            end(victim, liarExec),
		"one that never was":                     end(liar, "exnone"),
		"one without a name":                     end("", ""),
	} {
		p.execs[liar].Store(&[]*brig.Execution{forged})
		execs, err := h.ListExecs(rival, "liar")
		if err != nil {
			t.Fatal(err)
		}
		x, err := h.GetExec(acme, "victim", victimExec)
		if err != nil {
			t.Fatal(err)
		}
		all, err := h.ListExecs(acme, "victim")
		if err != nil {
			t.Fatal(err)
		}
		escaped := x.Done || len(all) != 1 || all[0].Done || len(execs) != 1 || execs[0].Sandbox != liar || execs[0].ExecID != liarExec || execs[0].Command.Argv[0] != "sleep"
		if escaped {
			t.Errorf("%s: the victim's is %+v of %d, the liar has %+v", name, x, len(all), execs)
		}
		attack.RecordCase("GST-02", "an agent tells of "+name, escaped)
	}
	// The control: the same report on the victim's own connection is accepted.
	p.execs[victim].Store(&[]*brig.Execution{end(victim, victimExec)})
	x, err := h.GetExec(acme, "victim", victimExec)
	seen := err == nil && x.Done && x.ExitCode == 66
	if !seen {
		t.Errorf("the victim's own agent is not believed: %+v, %v", x, err)
	}
	attack.RecordMutant("GST-02", "the same, said on the victim's connection", "a connection for each sandbox", seen)
}
