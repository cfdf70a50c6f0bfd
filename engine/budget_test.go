package engine_test

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// messageBudgets returns the message budgets of all processes that were started.
func (p *hookedProvider) messageBudgets() (out []brig.MessageBudget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		out = append(out, proc.budget)
	}
	return out
}

// TestInterpretersShareMessageBudget verifies that the contexts, runs, pooled interpreters and
// tools of a tenant share one message budget, and that all tenants share the budget of the
// server.
func TestInterpretersShareMessageBudget(t *testing.T) {
	const budget = 128 << 20 // of a tenant; the server has four times that
	withFakeClock(t, newPoolOptions(1), func(t *testing.T, h *fixture, p *hookedProvider) {
		var firsts []brig.MessageBudget
		for i, tenant := range []string{"acme", "second", "third", "fourth", "fifth"} {
			if i > 0 {
				if _, err := h.CreateTenant(withRole(t, brig.Operator), brig.Tenant{Name: tenant}); err != nil {
					t.Fatal(err)
				}
			}
			earlier := len(p.messageBudgets())
			if i == 0 {
				earlier = 0 // the pooled interpreter becomes the first tenant's
			}
			ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: tenant, Role: brig.Member})
			if _, err := h.Run(ctx, newPythonProgram("ann"), brig.IO{}); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := h.CreateContext(ctx, "box", brig.ContextSpec{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.RunTool(ctx, toolReturning("1")); err != nil {
				t.Fatal(err)
			}
			of := p.messageBudgets()[earlier:]
			if len(of) < 4 {
				t.Fatalf("%s has %d processes, want those of a run, two contexts and a tool", tenant, len(of))
			}
			firsts = append(firsts, of[0])
			if ok := of[0].Charge(budget); ok != (i < 4) {
				t.Fatalf("%s may charge %d bytes: %v", tenant, budget, ok)
			}
			for j, b := range of {
				if b == nil || b.Charge(1) {
					t.Errorf("process %d of %s does not share the budget", j, tenant)
				}
			}
		}
		firsts[0].Refund(budget)
		if !firsts[4].Charge(budget) {
			t.Error("the budget of the server is not returned")
		}
	})
}
