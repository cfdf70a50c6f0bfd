package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// warmedUp returns the instances whose shell has run the empty command so far.
func warmedUp(p *hookedProvider) []brig.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.shells)
}

// If persistent sandboxes are in demand, pooled instances run a command before a
// persistent sandbox claims them. Instances that only runs claim have not.
func TestPooledSandboxesAreWarmedUp(t *testing.T) {
	withFakeClock(t, newPoolOptions(1), func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Operator)
		mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		waitForRefill()
		if got := warmedUp(p); len(got) > 0 {
			t.Errorf("for one-shots %v had a command", got)
		}
		for _, name := range []string{"first", "second"} {
			s, err := h.Create(ctx, brig.Spec{Name: name})
			if err != nil || s.Pool != brig.PoolHit {
				t.Fatalf("created %+v, %v", s, err)
			}
			had := slices.Contains(warmedUp(p), s.ID)
			if want := name == "second"; had != want {
				t.Errorf("%s: that it had a command before is %t, want %t", name, had, want)
			}
			waitForRefill()
		}
		before := len(warmedUp(p))
		mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		waitForRefill()
		if got := len(warmedUp(p)); got != before {
			t.Errorf("after a one-shot again: %d had a command, want %d", got, before)
		}
		for _, name := range []string{"first", "second"} {
			if err := h.Remove(ctx, name); err != nil {
				t.Error(err)
			}
		}
		h.Close()
		p.assertClean(t)
	})
}

// A pooled instance is usable even if its shell fails.
func TestFailedWarmUpIsIgnored(t *testing.T) {
	withFakeClock(t, newPoolOptions(1), func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Operator)
		p.mu.Lock()
		p.exec = func(brig.Command) error { return errors.New("no shell") }
		p.mu.Unlock()
		for _, name := range []string{"first", "second"} {
			if s, err := h.Create(ctx, brig.Spec{Name: name}); err != nil || s.Pool != brig.PoolHit {
				t.Fatalf("created %+v, %v", s, err)
			}
			waitForRefill()
		}
		if s := h.poolClass(t); s.Ready < 1 || s.Failed != 0 || len(warmedUp(p)) == 0 {
			t.Errorf("what waits: %+v, after %d rehearsals", s, len(warmedUp(p)))
		}
	})
}

// Interpreters read some variables only at their start. A program or context that sets such a
// variable does not use a pooled interpreter.
func TestStartVariablesNeedNewInterpreter(t *testing.T) {
	for name, fresh := range map[string]bool{"OWNER": false, "PYTHONPATH": false, "PYTHONHASHSEED": true, "LC_ALL": true} {
		withFakeClock(t, newPoolOptions(2), func(t *testing.T, h *fixture, p *hookedProvider) {
			started := func() int {
				p.mu.Lock()
				defer p.mu.Unlock()
				return len(p.procs)
			}
			ctx := withRole(t, brig.Operator)
			before := started()
			o, err := h.Run(ctx, brig.Program{Language: brig.Python, Code: "env " + name, Env: map[string]string{name: "x"}}, brig.IO{})
			if n := started() - before; err != nil || string(o.Stdout.Head) != "x\n" || (n > 0) != fresh {
				t.Errorf("%s: %d interpreters were started; %+v, %v", name, n, o, err)
			}
			if name == "PYTHONPATH" {
				return // a context needs a new interpreter for this variable
			}
			if _, err := h.Create(ctx, brig.Spec{Name: "box", Env: map[string]string{name: "x"}, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			before = started()
			res, err := h.RunCode(ctx, "box", brig.Code{Source: "env " + name}, nil)
			if n := started() - before; err != nil || (n > 0) != fresh {
				t.Errorf("%s in a context: %d interpreters were started; %+v, %v", name, n, res, err)
			}
		})
	}
}
