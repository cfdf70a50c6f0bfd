package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// timedOperations maps operations to functions that run a program of 60 seconds and
// return when it has ended.
var timedOperations = map[string]func(ctx context.Context, h *fixture) error{
	"Exec": func(ctx context.Context, h *fixture) error {
		_, err := h.Exec(ctx, "box", brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{})
		return err
	},
	"Run": func(ctx context.Context, h *fixture) error {
		_, err := h.Run(ctx, brig.Program{Command: []string{"sleep", "60"}}, brig.IO{})
		return err
	},
}

// When a tenant has exhausted its daily execution time, the engine ends all
// executions of the tenant, at most half a second late. The callers receive the
// reason.
func TestTimeQuotaEndsExecutions(t *testing.T) {
	for name, begin := range timedOperations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attack.Case(t, "API-07", name+" that goes on when a day's time is used up")
				h := newQuotaFixture(t, brig.Quota{ExecutionTimePerDay: 10 * time.Second}, brig.Ceilings{})
				ctx := withRole(t, brig.Admin)
				if err := h.Recover(ctx); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
					t.Fatal(err)
				}
				at := time.Now()
				var wg sync.WaitGroup
				for range 4 { // all four share the ten seconds
					wg.Go(func() { wantQuota(t, name, begin(ctx, h), "execution_ms_per_day") })
				}
				wg.Wait()
				if d := time.Since(at); d < 2500*time.Millisecond || d > 3*time.Second {
					t.Errorf("four used up ten seconds in %v", d)
				}
				lines, err := h.TenantUsage(ctx, brig.UsageQuery{})
				if err != nil || lines[0].ExecutionTime < 10*time.Second || lines[0].ExecutionTime > 12*time.Second {
					t.Errorf("used: %+v, %v", lines, err)
				}
				if s, err := h.Get(ctx, "box"); err != nil || s.State != brig.Running {
					t.Errorf("the sandbox, whose time is not bounded: %+v, %v", s, err)
				}
				wantQuota(t, "one more", begin(ctx, h), "execution_ms_per_day")
				// The control: a tenant with a larger quota continues.
				setQuota(t, h.store, brig.Quota{}, brig.Ceilings{})
				operator := brig.WithActor(t.Context(), brig.Actor{Name: "op", Tenant: "rival", Role: brig.Operator})
				if _, err := h.UpdateTenant(operator, brig.Tenant{Name: "acme", Quota: brig.Quota{ExecutionTimePerDay: time.Hour}}); err != nil {
					t.Fatal(err)
				}
				err = begin(ctx, h)
				if err != nil {
					t.Errorf("with an hour: %v", err)
				}
				attack.RecordMutant("API-07", "the same with an hour a day", "ten seconds a day", err == nil)
				h.Close()
			})
		})
	}
}

// An exhausted time quota also ends processes, and commands that outlive their
// callers, although no caller waits for them.
func TestTimeQuotaEndsDetachedProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQuotaFixture(t, brig.Quota{ExecutionTimePerDay: 10 * time.Second}, brig.Ceilings{})
		ctx := withRole(t, brig.Admin)
		if err := h.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"box", "survivor"} {
			if _, err := h.Create(ctx, brig.Spec{Name: name, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		p, err := h.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "60"}}})
		if err != nil {
			t.Fatal(err)
		}
		callerCtx, disconnect := context.WithCancel(ctx)
		_, err = h.Exec(callerCtx, "survivor", brig.Command{Argv: []string{"sleep", "60"}, Survive: true}, brig.IO{Started: func(string) { disconnect() }})
		if err == nil {
			t.Fatal("the caller went away and was answered")
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		list, err := h.Processes("box").List(ctx)
		if err != nil || len(list) != 1 || list[0].PID != p.PID || list[0].Result == nil || list[0].Result.Signal == "" {
			t.Errorf("processes %+v, %v", list, err)
		}
		s, err := h.Get(ctx, "survivor")
		if err != nil || s.State != brig.Ended || s.Exit == nil || s.Exit.Reason != brig.OverTime {
			t.Errorf("the sandbox of a command that survives: %+v, %v", s, err)
		}
		if s, err := h.Get(ctx, "box"); err != nil || s.State != brig.Running {
			t.Errorf("the other: %+v, %v", s, err)
		}
		h.Close()
	})
}

// Sandboxes use the time quota during their whole lifetime, and end when it is
// exhausted.
func TestTimeQuotaEndsSandboxes(t *testing.T) {
	for field, q := range map[string]brig.Quota{
		"cpu_ms_per_day":      {CPUTimePerDay: 20 * time.Second},
		"gib_seconds_per_day": {MemoryPerDay: 10},
	} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newQuotaFixture(t, q, brig.Ceilings{})
				ctx := withRole(t, brig.Admin)
				if err := h.Recover(ctx); err != nil {
					t.Fatal(err)
				}
				spec := brig.Spec{TTL: time.Hour, Limits: brig.Limits{CPUs: 1, Memory: brig.GiB / 2}}
				for _, spec.Name = range []string{"one", "two"} {
					if _, err := h.Create(ctx, spec); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := h.Create(brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Member}), spec); err != nil {
					t.Fatal(err)
				}
				// A server that starts in between loads the usage so far, and ends
				// the sandboxes of the previous server when the quota is exhausted.
				time.Sleep(5 * time.Second)
				h.Close()
				h.Engine = engine.New(t.Context(), h.Options)
				if err := h.Recover(ctx); err != nil {
					t.Fatal(err)
				}
				done := make(chan error)
				go func() {
					_, err := h.Exec(ctx, "one", brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{})
					done <- err
				}()
				wantQuota(t, "what goes on in one", <-done, field)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				for _, name := range []string{"one", "two"} {
					s, err := h.Get(ctx, name)
					if err != nil || s.Exit == nil || s.Exit.Reason != brig.OverTime {
						t.Fatalf("%s: %+v, %v", name, s, err)
					}
					if life := s.Ended.Sub(s.Created); life < 10*time.Second || life > 12*time.Second {
						t.Errorf("%s lived for %v, and there was time for 10s", name, life)
					}
				}
				rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Viewer})
				if s, err := h.Get(rival, "two"); err != nil || s.State != brig.Running {
					t.Errorf("another tenant's: %+v, %v", s, err)
				}
				_, err := h.Create(ctx, brig.Spec{})
				wantQuota(t, "one more", err, field)
				time.Sleep(brig.AsError(err).RetryAfter)
				if _, err := h.Create(ctx, brig.Spec{}); err != nil {
					t.Errorf("on the next day: %v", err)
				}
				h.Close()
			})
		})
	}
}

// GetRun finds the outcome of a run by its scoped ID. The tenant and all parts of
// the ID must match.
func TestGetRunAcceptsScopedID(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	o, err := h.Run(ctx, brig.Program{SandboxName: "job", Command: []string{"echo", "hi"}}, brig.IO{})
	if err != nil || o.ID == "" {
		t.Fatal(o, err)
	}
	id := string(o.ID)
	if got, err := h.GetRun(ctx, "acme:job:"+id); err != nil || got.ID != o.ID || string(got.Stdout.Head) != string(o.Stdout.Head) {
		t.Errorf("%+v, %v", got, err)
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Member})
	if _, err := h.Run(rival, brig.Program{SandboxName: "job", Command: []string{"echo"}}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ctx  context.Context
		name string
	}{
		{ctx, "rival:job:" + id}, {ctx, "acme:other:" + id}, {ctx, "acme:job:" + id + "z"}, {ctx, "acme:job:"}, {ctx, "acme:job"},
		{ctx, ":job:" + id}, {rival, "acme:job:" + id}, {rival, "rival:job:" + id},
	} {
		if got, err := h.GetRun(c.ctx, c.name); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}
