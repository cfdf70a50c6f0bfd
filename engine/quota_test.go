package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// setQuota gives the tenant acme a quota and limits.
func setQuota(t *testing.T, s brig.Store, q brig.Quota, c brig.Ceilings) {
	t.Helper()
	if err := s.PutTenant(t.Context(), &brig.Tenant{Name: "acme", Quota: q, Ceilings: c}); err != nil {
		t.Fatal(err)
	}
}

func newQuotaFixture(t *testing.T, q brig.Quota, c brig.Ceilings) *fixture {
	t.Helper()
	h := newFixture(t, nil)
	setQuota(t, h.store, q, c) // before the tenant's first request
	return h
}

// wantQuota fails the test unless err names the exceeded quota and the time to
// retry after.
func wantQuota(t *testing.T, what string, err error, field string) {
	t.Helper()
	e := brig.AsError(err)
	if e == nil || e.Kind != brig.RateLimited || e.Field != "quota."+field || e.Hint == "" || e.RetryAfter <= 0 {
		t.Errorf("%s: %v, want quota.%s used up", what, err, field)
	}
}

// Of 200 concurrent creates, exactly as many succeed as the quota allows. Failed
// creates and ended sandboxes release their share of the quota, and a restarted
// server has the same count.
func TestSandboxQuotaIsExact(t *testing.T) {
	attack.Case(t, "API-07", "200 at once where ten may be, 50 where three may, again after a restart")
	h := newQuotaFixture(t, brig.Quota{Sandboxes: 10}, brig.Ceilings{})
	ctx := withRole(t, brig.Member)
	create := func(n int, spec brig.Spec) (made int) {
		var wg sync.WaitGroup
		var ok atomic.Int64
		for range n {
			wg.Go(func() {
				_, err := h.Create(ctx, spec)
				if err == nil {
					ok.Add(1)
				} else if k := brig.KindOf(err); k != brig.RateLimited && k != brig.CreationFailed {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return int(ok.Load())
	}
	h.provider.CreateError = brig.Errorf(brig.CreationFailed, "no")
	if n := create(50, brig.Spec{}); n != 0 {
		t.Fatalf("%d were made by a provider that makes none", n)
	}
	h.provider.CreateError = nil
	if n := create(200, brig.Spec{}); n != 10 {
		t.Errorf("%d of 200 succeed, the quota is 10", n)
	}
	_, err := h.Create(ctx, brig.Spec{})
	wantQuota(t, "the 11th", err, "sandboxes")
	_, err = h.Run(ctx, brig.Program{Command: []string{"echo"}}, brig.IO{})
	wantQuota(t, "a one-shot beside ten", err, "sandboxes")
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Member})
	if _, err := h.Create(rival, brig.Spec{}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	page, err := h.List(ctx, brig.ListOptions{})
	if err != nil || len(page.Sandboxes) != 10 {
		t.Fatal(page, err)
	}
	for i, end := range []func(string) error{
		func(n string) error { return h.Remove(ctx, n) },
		func(n string) error { _, err := h.Kill(ctx, n); return err },
		func(n string) error { _, err := h.Stop(ctx, n, 0); return err },
	} {
		if err := end(page.Sandboxes[i].Spec.Name); err != nil {
			t.Fatal(err)
		}
	}
	if n := create(50, brig.Spec{}); n != 3 {
		t.Errorf("three have ended, and %d more could be made", n)
	}
	h.Close()
	h.Engine = engine.New(t.Context(), h.Options)
	defer h.Close()
	if err := h.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	if n := create(20, brig.Spec{}); n != 0 {
		t.Errorf("after a restart %d more could be made", n)
	}
	for i := range 2 {
		if err := h.Remove(ctx, page.Sandboxes[5+i].Spec.Name); err != nil {
			t.Fatal(err)
		}
	}
	if n := create(20, brig.Spec{}); n != 2 {
		t.Errorf("two were removed after a restart, and %d more could be made", n)
	}
	// The control: a larger quota allows more.
	h = newQuotaFixture(t, brig.Quota{Sandboxes: 30}, brig.Ceilings{})
	n := create(60, brig.Spec{})
	if n != 30 {
		t.Errorf("%d of 60 succeed, the quota is 30", n)
	}
	attack.RecordMutant("API-07", "60 at once where 30 may be", "the quota of ten", n > 10)
}

// The quota bounds the concurrent executions of all kinds. Executions of other
// tenants do not count.
func TestExecutionQuotaLimitsConcurrency(t *testing.T) {
	h := newQuotaFixture(t, brig.Quota{Executions: 3}, brig.Ceilings{})
	ctx := withRole(t, brig.Member)
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	begun := make(chan string, 1)
	holdCtx, cancelHold := context.WithCancel(ctx)
	defer cancelHold()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, _ = h.Exec(holdCtx, "box", brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{Started: func(id string) { begun <- id }})
		})
		<-begun
	}
	_, err := h.Exec(ctx, "box", brig.Command{Argv: []string{"echo"}}, brig.IO{})
	wantQuota(t, "Exec", err, "executions")
	_, err = h.Run(ctx, brig.Program{Command: []string{"echo"}}, brig.IO{})
	wantQuota(t, "Run", err, "executions")
	_, err = h.RunCode(ctx, "box", brig.Code{Source: "1"}, nil)
	wantQuota(t, "RunCode", err, "executions")
	_, err = h.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"echo"}}})
	wantQuota(t, "Start", err, "executions")
	cancelHold()
	wg.Wait()
	if _, err := h.Exec(ctx, "box", brig.Command{Argv: []string{"echo"}}, brig.IO{}); err != nil {
		t.Errorf("after three have ended: %v", err)
	}
}

// The daily execution quota is exact under concurrency, persists across a restart,
// and is reset on the next day.
func TestDailyExecutionQuotaIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQuotaFixture(t, brig.Quota{ExecutionsPerDay: 7}, brig.Ceilings{})
		ctx := withRole(t, brig.Member)
		run := func(n int) (done int) {
			var wg sync.WaitGroup
			var ok atomic.Int64
			for range n {
				wg.Go(func() {
					if _, err := h.Run(ctx, brig.Program{Command: []string{"echo"}}, brig.IO{}); err == nil {
						ok.Add(1)
					} else {
						wantQuota(t, "Run", err, "executions_per_day")
					}
				})
			}
			wg.Wait()
			return int(ok.Load())
		}
		if n := run(4); n != 4 {
			t.Fatalf("%d of 4", n)
		}
		h.Close()
		h.Engine = engine.New(t.Context(), h.Options)
		if err := h.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		if n := run(40); n != 3 {
			t.Errorf("4 were run before the restart, and %d after it; the quota is 7", n)
		}
		_, err := h.Run(ctx, brig.Program{Command: []string{"echo"}}, brig.IO{})
		if wait := brig.AsError(err).RetryAfter; wait <= 0 || wait > 24*time.Hour {
			t.Errorf("try again in %v", wait)
		} else {
			time.Sleep(wait)
		}
		if n := run(9); n != 7 {
			t.Errorf("%d on the next day", n)
		}
		h.Close()
	})
}

// Usage is reported per day, in total and by label, and persists across a restart.
func TestUsagePersistsAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQuotaFixture(t, brig.Quota{}, brig.Ceilings{})
		admin := withRole(t, brig.Admin)
		if err := h.Recover(admin); err != nil {
			t.Fatal(err)
		}
		s, err := h.Create(admin, brig.Spec{Name: "box", TTL: time.Hour, Labels: map[string]string{"team": "red"}, Limits: brig.Limits{CPUs: 2, Memory: brig.GiB}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Exec(admin, "box", brig.Command{Argv: []string{"sleep", "10"}}, brig.IO{}); err != nil {
			t.Fatal(err)
		}
		if err := h.CountEgress(s.ID, 1000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := h.Remove(admin, "box"); err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			for label, value := range map[string]string{"": "", "team": "red"} {
				lines, err := h.TenantUsage(admin, brig.UsageQuery{Label: label})
				if err != nil || len(lines) != 1 || lines[0].Value != value || lines[0].Tenant != "acme" {
					t.Fatalf("%s, label %q: %+v, %v", when, label, lines, err)
				}
				got := lines[0].UsageTotals
				got.Memory = float64(int(got.Memory*1000+0.5)) / 1000
				if want := (brig.UsageTotals{Executions: 1, ExecutionTime: 10 * time.Second, CPUTime: 40 * time.Second, Memory: 20, Egress: 1000}); got != want {
					t.Errorf("%s, label %q: %+v, want %+v", when, label, got, want)
				}
			}
		}
		check("at once")
		h.Close()
		h.Engine = engine.New(t.Context(), h.Options)
		check("after a restart")
		rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Admin})
		if lines, err := h.TenantUsage(rival, brig.UsageQuery{}); err != nil || len(lines) != 0 {
			t.Errorf("another tenant's: %+v, %v", lines, err)
		}
		if _, err := h.TenantUsage(rival, brig.UsageQuery{Tenant: "acme"}); brig.KindOf(err) != brig.NotFound {
			t.Errorf("of another tenant: %v", err)
		}
		operator := brig.WithActor(t.Context(), brig.Actor{Name: "op", Tenant: "rival", Role: brig.Operator})
		if lines, err := h.TenantUsage(operator, brig.UsageQuery{Tenant: brig.AllTenants}); err != nil || len(lines) != 1 {
			t.Errorf("to an operator: %+v, %v", lines, err)
		}
		h.Close()
	})
}

// When a daily quota is exhausted, the engine rejects calls with an error that
// names the quota.
func TestExhaustedDailyQuotaRejectsCalls(t *testing.T) {
	for field, q := range map[string]brig.Quota{
		"execution_ms_per_day": {ExecutionTimePerDay: 5 * time.Second},
		"cpu_ms_per_day":       {CPUTimePerDay: 5 * time.Second},
		"gib_seconds_per_day":  {MemoryPerDay: 2},
		"egress_bytes_per_day": {EgressPerDay: 100},
	} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newQuotaFixture(t, q, brig.Ceilings{})
				ctx := withRole(t, brig.Member)
				if err := h.Recover(ctx); err != nil {
					t.Fatal(err)
				}
				s, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				_, err = h.Exec(ctx, "box", brig.Command{Argv: []string{"sleep", "6"}}, brig.IO{})
				if field == "egress_bytes_per_day" && err != nil {
					t.Fatalf("before it is used up: %v", err)
				} else if field != "egress_bytes_per_day" {
					wantQuota(t, "what goes on when it is used up", err, field)
				}
				if field == "egress_bytes_per_day" {
					wantQuota(t, "CountEgress", h.CountEgress(s.ID, 101), field)
				}
				_, err = h.Run(ctx, brig.Program{Command: []string{"echo"}}, brig.IO{})
				wantQuota(t, "Run", err, field)
				h.Close()
			})
		})
	}
	h := newQuotaFixture(t, brig.Quota{Storage: 3 * brig.GiB}, brig.Ceilings{})
	for i := range 4 {
		_, err := h.Create(withRole(t, brig.Member), brig.Spec{Limits: brig.Limits{Disk: brig.GiB}})
		if i < 3 && err != nil {
			t.Error(err)
		} else if i == 3 {
			wantQuota(t, "Create", err, "storage")
		}
	}
}

// After an initial burst, calls are admitted at the quota's rate.
func TestCallsAreAdmittedAtTenantRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQuotaFixture(t, brig.Quota{Rate: 5}, brig.Ceilings{})
		ctx := withRole(t, brig.Viewer)
		count := func() (n int) {
			for range 100 {
				if _, err := h.List(ctx, brig.ListOptions{}); err == nil {
					n++
				} else {
					wantQuota(t, "List", err, "rate")
				}
			}
			return n
		}
		if n := count(); n != 10 {
			t.Errorf("%d at once, want two seconds' worth", n)
		}
		time.Sleep(time.Second)
		if n := count(); n != 5 {
			t.Errorf("%d after a second", n)
		}
		if events, err := h.store.Events(t.Context(), 1000); err != nil || len(events) != 0 {
			t.Errorf("%d events of refusals for their rate", len(events))
		}
		h.Close()
	})
}

// All grants and sessions of a key, or of a person, share the rate limit of one key. Other
// callers of the tenant are not affected.
func TestCredentialsOfCallerShareRate(t *testing.T) {
	ann := &brig.Person{Issuer: "https://login.example.com", Subject: "42", Email: "ann@example.com"}
	bob := &brig.Person{Issuer: "https://login.example.com", Subject: "43", Email: "ann@example.com"}
	for name, c := range map[string]struct{ mine, others []brig.Actor }{
		"key":    {[]brig.Actor{{Key: "k1"}, {Key: "k1", Grant: "g1"}, {Key: "k1", Session: "s1"}}, []brig.Actor{{Key: "k2"}, {Person: ann}}},
		"person": {[]brig.Actor{{Person: ann}, {Person: ann, Session: "s1"}}, []brig.Actor{{Person: bob}, {Key: "k1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newQuotaFixture(t, brig.Quota{Rate: 1000, RatePerKey: 5}, brig.Ceilings{})
				list := func(a brig.Actor) error {
					a.Name, a.Tenant, a.Role = "ann", "acme", brig.Viewer
					_, err := h.List(brig.WithActor(t.Context(), a), brig.ListOptions{})
					return err
				}
				admitted := 0
				for range 50 {
					for _, a := range c.mine {
						if err := list(a); err == nil {
							admitted++
						} else {
							wantQuota(t, "List", err, "rate_per_key")
						}
					}
				}
				if admitted != 10 {
					t.Errorf("%d calls were admitted, want two seconds' worth", admitted)
				}
				for _, a := range c.others {
					if err := list(a); err != nil {
						t.Errorf("another caller %+v: %v", a, err)
					}
				}
				h.Close()
			})
		})
	}
}

// Visitors of ports, who have no credential, share one rate limit. It is independent of the rate
// limit of the tenant's own callers.
func TestVisitorsShareOneRateLimit(t *testing.T) {
	for _, firstVisits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newQuotaFixture(t, brig.Quota{Rate: 5}, brig.Ceilings{})
			count := func(visitor bool) (n int) {
				a := brig.Actor{Name: "e2b", Tenant: "acme", Role: brig.Member, Visitor: visitor}
				if !visitor {
					a.Key = "k1"
				}
				for range 100 {
					if _, err := h.List(brig.WithActor(t.Context(), a), brig.ListOptions{}); err == nil {
						n++
					} else {
						wantQuota(t, "List", err, "rate")
					}
				}
				return n
			}
			first, second := count(firstVisits), count(!firstVisits)
			if first != 10 || second != 10 {
				t.Errorf("%d and %d calls were admitted, want two seconds' worth of each", first, second)
			}
			h.Close()
		})
	}
}

// A viewer who repeats the changes that viewers may make causes a bounded number of audit lines,
// whether or not the calls succeed. Other viewers of the tenant are not affected, nor are admins
// with the same calls.
func TestViewersChangesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSeedFixture(t)
		as := func(role brig.Role, key string, sandboxes ...string) context.Context {
			return brig.WithActor(t.Context(), brig.Actor{Name: key, Tenant: "acme", Role: role, Key: key, Sandboxes: sandboxes})
		}
		const calls, rest = 10_000, 5 * time.Millisecond
		admitted := 0
		for i := range calls {
			time.Sleep(rest)
			var err error
			switch i % 3 {
			case 0:
				_, err = h.CreateGrant(as(brig.Viewer, "k1"), brig.GrantSpec{})
			case 1:
				_, err = h.CreateGrant(as(brig.Viewer, "k1", "one"), brig.GrantSpec{})
			default:
				err = h.EndSession(as(brig.Viewer, "k1"), "x")
			}
			if brig.KindOf(err) != brig.RateLimited {
				admitted++
			} else if e := brig.AsError(err); e.Hint == "" || e.RetryAfter <= 0 {
				t.Fatalf("%v without advice", err)
			}
		}
		limit := 100 + int(calls*rest/time.Second) + 1
		events, err := h.store.Events(t.Context(), 2*calls)
		if err != nil || admitted < 100 || admitted > limit || len(events) > 2*limit {
			t.Errorf("%d calls and %d lines, want at most %d and %d; %v", admitted, len(events), limit, 2*limit, err)
		}
		for range 50 {
			if _, err := h.CreateGrant(as(brig.Viewer, "k2"), brig.GrantSpec{}); err != nil {
				t.Fatalf("another viewer: %v", err)
			}
		}
		for range 200 {
			if _, err := h.CreateGrant(as(brig.Admin, "k3"), brig.GrantSpec{}); err != nil {
				t.Fatalf("an admin: %v", err)
			}
		}
		h.Close()
	})
}

// A check before the body is read counts as the call itself. Requests with an
// invalid body are therefore limited, and valid requests count once.
func TestCheckCountsAsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQuotaFixture(t, brig.Quota{Rate: 5}, brig.Ceilings{})
		invalid, valid := 0, 0
		for range 100 {
			if err := h.Check(withRole(t, brig.Viewer), brig.OpList, ""); err == nil {
				invalid++
			} else {
				wantQuota(t, "Check", err, "rate")
			}
		}
		time.Sleep(time.Minute)
		for range 100 {
			ctx := withRole(t, brig.Viewer)
			if h.Check(ctx, brig.OpList, "") != nil {
				continue
			}
			if _, err := h.List(ctx, brig.ListOptions{}); err != nil {
				t.Errorf("the call of an admitted check: %v", err)
			}
			valid++
			// The check covers only one call, so the next call counts.
			if _, err := h.List(ctx, brig.ListOptions{}); err == nil {
				valid++
			}
		}
		if invalid != 10 || valid != 10 {
			t.Errorf("%d checks and %d calls were admitted, want 10 of each", invalid, valid)
		}
		h.Close()
	})
}

// Requested values that exceed the tenant's ceilings are rejected, and defaults are
// reduced to the ceilings.
func TestTenantCeilingsLimitRequests(t *testing.T) {
	h := newQuotaFixture(t, brig.Quota{}, brig.Ceilings{
		Limits: brig.Limits{Memory: 256 * brig.MiB, CPUs: 0.5}, MaxTTL: time.Minute, MaxLife: 2 * time.Minute, MaxTimeout: 10 * time.Second,
		Images: []string{"ho*"},
	})
	ctx := withRole(t, brig.Member)
	s, err := h.Create(ctx, brig.Spec{Name: "box"})
	if err != nil || s.Spec.Limits.Memory != 256*brig.MiB || s.Spec.Limits.CPUs != 0.5 || s.Spec.TTL != time.Minute {
		t.Fatalf("defaults: %+v, %v", s, err)
	}
	for field, spec := range map[string]brig.Spec{
		"limits.memory": {Limits: brig.Limits{Memory: brig.GiB}},
		"limits.cpus":   {Limits: brig.Limits{CPUs: 1}},
		"ttl_ms":        {TTL: time.Hour},
		"timeout_ms":    {Command: &brig.Command{Argv: []string{"echo"}, Timeout: time.Minute}},
	} {
		if _, err := h.Create(ctx, spec); brig.AsError(err) == nil || brig.AsError(err).Field != field {
			t.Errorf("beyond %s: %v", field, err)
		}
	}
	if _, err := h.Exec(ctx, "box", brig.Command{Argv: []string{"echo"}, Timeout: time.Minute}, brig.IO{}); brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("Exec for longer: %v", err)
	}
	if s, err := h.Extend(ctx, "box", time.Minute); err != nil || s.Expires.After(s.Created.Add(2*time.Minute)) {
		t.Errorf("Extend: %+v, %v", s, err)
	}
	for ref, want := range map[string]brig.Kind{"host": "", "sha256:host": "", "other": brig.PolicyBlocked, "sha256:none": brig.InvalidArgument} {
		if _, err := h.Create(ctx, brig.Spec{Image: ref}); brig.KindOf(err) != want {
			t.Errorf("image %s: %v, want %q", ref, err, want)
		}
	}
	pinned := newQuotaFixture(t, brig.Quota{}, brig.Ceilings{Images: []string{"sha256:host"}, DigestsOnly: true})
	for ref, want := range map[string]brig.Kind{"": brig.PolicyBlocked, "host": brig.PolicyBlocked, "sha256:host": ""} {
		if _, err := pinned.Run(ctx, brig.Program{Command: []string{"echo"}, Image: ref}, brig.IO{}); brig.KindOf(err) != want {
			t.Errorf("pinned, image %q: %v, want %q", ref, err, want)
		}
	}
	foreign := newQuotaFixture(t, brig.Quota{}, brig.Ceilings{Images: []string{"sha256:other"}})
	if _, err := foreign.Create(ctx, brig.Spec{Image: "sha256:host"}); brig.KindOf(err) != brig.PolicyBlocked {
		t.Errorf("a digest that is not allowed: %v", err)
	}
}

// The usage records of arbitrary labels are limited, so that callers cannot fill the disk.
// TestLabelsAreLimited of package quota tests the limit itself.
func TestUsageLabelsAreLimited(t *testing.T) {
	runs, want := 20, 20
	if testenv.IsFull() { // the runs take 40 seconds with the race detector
		runs, want = 1100, 1000
	}
	h := newQuotaFixture(t, brig.Quota{}, brig.Ceilings{})
	ctx := withRole(t, brig.Admin)
	for i := range runs {
		if _, err := h.Run(ctx, brig.Program{Command: []string{"echo"}, Labels: map[string]string{"n": fmt.Sprint(i)}}, brig.IO{}); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := h.TenantUsage(ctx, brig.UsageQuery{Label: "n"})
	if err != nil || len(lines) != want {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if sum, err := h.TenantUsage(ctx, brig.UsageQuery{}); err != nil || len(sum) != 1 || sum[0].Executions != int64(runs) {
		t.Errorf("sums %+v, %v", sum, err)
	}
}
