package engine_test

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// getSandbox returns the sandbox's current record.
func (h *fixture) getSandbox(t *testing.T, name string) *brig.Sandbox {
	t.Helper()
	advance(0)
	s, err := h.Get(withRole(t, brig.Operator), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantLease fails the test unless the sandbox is running and its lease ends d
// from now.
func (h *fixture) wantLease(t *testing.T, when, name string, d time.Duration) {
	t.Helper()
	s := h.getSandbox(t, name)
	if remaining := time.Until(s.Expires); s.State != brig.Running || remaining > d || remaining < d-time.Second {
		t.Errorf("%s: %s for another %v, want %v", when, s.State, remaining, d)
	}
}

// A sandbox ends when it has been idle for its TTL, and every use renews the lease.
func TestLeaseFollowsUse(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "one", TTL: 5 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		echo := func() {
			t.Helper()
			if _, err := h.Exec(ctx, "one", brig.Command{Argv: []string{"echo", "hi"}}, brig.IO{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			time.Sleep(4 * time.Minute)
			echo()
			h.wantLease(t, "after an exec", "one", 5*time.Minute)
		}
		time.Sleep(4 * time.Minute)
		if _, err := h.RunCode(ctx, "one", brig.Code{Source: "echo hi"}, nil); err != nil {
			t.Fatal(err)
		}
		h.wantLease(t, "after code", "one", 5*time.Minute)
		rev := h.countWrites(t, "one")
		for range 5 {
			time.Sleep(time.Second)
			echo()
		}
		if now := h.countWrites(t, "one"); now != rev {
			t.Errorf("five uses within five seconds are %d writes", now-rev)
		}
		before := h.getSandbox(t, "one").Expires
		time.Sleep(time.Until(before) - time.Second)
		if s := h.getSandbox(t, "one"); s.State != brig.Running {
			t.Errorf("a second too early it is %s", s.State)
		}
		time.Sleep(2 * time.Second)
		if s := h.getSandbox(t, "one"); s.State != brig.Ended || s.Exit == nil || s.Exit.Reason != brig.LeaseExpired || s.Ended.Sub(before).Abs() > time.Second {
			t.Errorf("then it is %s, %+v, at %v, want %v", s.State, s.Exit, s.Ended, before)
		}
		if _, err := h.Extend(ctx, "one", time.Hour); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("extended after its end: %v", err)
		}
	})
}

// countWrites returns the number of writes of a record.
func (h *fixture) countWrites(t *testing.T, name string) int64 {
	t.Helper()
	r, err := h.store.Get(t.Context(), "acme", name)
	if err != nil {
		t.Fatal(err)
	}
	return r.Rev
}

// The lease does not end a command that takes longer than the TTL. After the
// command, the remaining lease is at least the TTL.
func TestLeaseCoversTheCommand(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "one", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		res, err := h.Exec(ctx, "one", brig.Command{Argv: []string{"sleep", "1800"}, Timeout: time.Hour}, brig.IO{})
		if err != nil || res.TimedOut || res.ExitCode != 0 || res.Duration < 30*time.Minute {
			t.Fatalf("%+v, %v", res, err)
		}
		// The sandbox keeps the lease that was set for the command, because
		// renew never shortens a lease.
		s := h.getSandbox(t, "one")
		if remaining := time.Until(s.Expires); s.State != brig.Running || remaining < time.Minute-time.Second {
			t.Errorf("afterwards it is %s for another %v", s.State, remaining)
		}
	})
}

// Neither use nor extension makes a sandbox live longer than MaxLife.
func TestMaxLifeLimitsLease(t *testing.T) {
	limitRange := brig.DefaultLimitRange()
	limitRange.MaxLife = 25 * time.Hour // with the default of a week, the engine's ticks take half a minute
	withFakeClock(t, engine.Options{LimitRange: limitRange}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		created, err := h.Create(ctx, brig.Spec{Name: "one", TTL: 20 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		end := created.Created.Add(h.LimitRange.MaxLife)
		for time.Until(end) > 10*time.Hour {
			time.Sleep(10 * time.Hour)
			s, err := h.Extend(ctx, "one", 24*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if s.Expires.After(end) {
				t.Fatalf("it may live until %v, and the longest life ends at %v", s.Expires, end)
			}
		}
		time.Sleep(time.Until(end) + time.Second)
		if s := h.getSandbox(t, "one"); s.State != brig.Ended || s.Exit.Reason != brig.LeaseExpired {
			t.Errorf("after the longest life it is %s, %+v", s.State, s.Exit)
		}
	})
}

// A lease continues to run while no server is running. The next server finds the
// instance with its remaining lease, or records its end.
func TestLeaseContinuesWithoutServer(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Member)
		for name, ttl := range map[string]time.Duration{"short": time.Minute, "long": time.Hour} {
			if _, err := h.Create(ctx, brig.Spec{Name: name, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		h.Close()
		time.Sleep(10 * time.Minute)
		h.Engine = engine.New(t.Context(), engine.Options{Store: h.store, Provider: p, Images: images{}, LimitRange: brig.DefaultLimitRange()})
		defer h.Close()
		if err := h.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		if s := h.getSandbox(t, "short"); s.State != brig.Ended || s.Exit.Reason != brig.LeaseExpired {
			t.Errorf("short is %s, %+v", s.State, s.Exit)
		}
		h.wantLease(t, "long", "long", 50*time.Minute)
	})
}

// Ended sandboxes and the outcomes of runs are available for the configured time,
// and are then deleted.
func TestEndedSandboxesArePruned(t *testing.T) {
	withFakeClock(t, engine.Options{RunRetention: time.Hour}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Kill(ctx, "one"); err != nil {
			t.Fatal(err)
		}
		o, err := h.Run(ctx, brig.Program{Command: []string{"echo", "hi"}}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if _, err := h.GetRun(ctx, o.Sandbox); err != nil {
			t.Errorf("the run, within the hour: %v", err)
		}
		time.Sleep(3 * time.Minute)
		if _, err := h.GetRun(ctx, o.Sandbox); brig.KindOf(err) != brig.NotFound {
			t.Errorf("the run, after the hour: %v", err)
		}
		time.Sleep(22 * time.Hour)
		if s := h.getSandbox(t, "one"); s.State != brig.Ended {
			t.Errorf("the sandbox, within the day: %s", s.State)
		}
		time.Sleep(2 * time.Hour)
		if _, err := h.Get(ctx, "one"); brig.KindOf(err) != brig.NotFound {
			t.Errorf("the sandbox, after the day: %v", err)
		}
		if machines := h.provider.Machines(); len(machines) > 0 {
			t.Errorf("machines %v are left", machines)
		}
	})
}
