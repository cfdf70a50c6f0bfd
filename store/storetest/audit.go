package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func testEvents(t *testing.T, s brig.Store) {
	ctx := t.Context()
	none, err := s.Events(ctx, 10)
	mustSucceed(t, err)
	if len(none) != 0 {
		t.Errorf("a new store has %d events", len(none))
	}
	mustSucceed(t, s.Append(ctx))
	a, b, c := event("a"), event("b"), event("c")
	a.Kind, a.Phase = brig.RateLimited, brig.Refused
	b.At = birth.Add(-time.Hour) // the clock was set back, but b is still newer
	c.Sandbox, c.Phase = "", brig.Finish
	mustSucceed(t, s.Append(ctx, a, b))
	mustSucceed(t, s.Append(ctx, c))
	for n, want := range map[int][]brig.Event{
		-1: nil, 0: nil, 1: {c}, 2: {c, b}, 3: {c, b, a}, 1 << 30: {c, b, a},
	} {
		got, err := s.Events(ctx, n)
		mustSucceed(t, err)
		if len(got) != 0 || len(want) != 0 {
			checkEqual(t, fmt.Sprintf("the newest %d", n), got, want)
		}
	}
	got, err := s.Events(ctx, 1)
	mustSucceed(t, err)
	got[0].Op = "scribbled"
	checkEqual(t, "after its copy was changed", ops(t, s, 1), []string{"c"})
}

// testEventsInTransaction checks that a write and its events succeed or fail
// together.
func testEventsInTransaction(t *testing.T, s brig.Store) {
	ctx := t.Context()
	r := record("t", "a")
	mustSucceed(t, s.Put(ctx, r, event("insert-1"), event("insert-2")))
	stale := *r
	mustSucceed(t, s.Put(ctx, r, event("update")))
	kind(t, s.Put(ctx, record("t", "a"), event("id taken")), brig.AlreadyExists)
	other := record("t", "a")
	other.ID = "id-other"
	kind(t, s.Put(ctx, other, event("name taken")), brig.AlreadyExists)
	kind(t, s.Put(ctx, &stale, event("stale")), brig.FailedPrecondition)
	end := canceled(t)
	for _, err := range []error{
		s.Put(end, r, event("canceled")),
		s.Delete(end, r.ID, event("canceled")),
		s.PutRun(end, "t", &brig.Outcome{Sandbox: "r"}, event("canceled")),
		s.Append(end, event("canceled")),
	} {
		if k := brig.KindOf(err); k != brig.Canceled {
			t.Errorf("a write under an ended context: %v, of kind %q", err, k)
		}
	}
	checkEqual(t, "events", ops(t, s, 99), []string{"update", "insert-2", "insert-1"})
}

// testCanceled checks that a canceled call has no effect.
func testCanceled(t *testing.T, s brig.Store) {
	ctx, end := t.Context(), canceled(t)
	r := put(t, s, "t", "a")
	want := *r
	r.State = brig.Ended
	x := execution(r.ID, "x", 1)
	for name, f := range map[string]func() error{
		"Put":          func() error { return s.Put(end, r) },
		"Get":          func() error { _, err := s.Get(end, "t", "a"); return err },
		"List":         func() error { _, _, err := s.List(end, "t", brig.ListOptions{}); return err },
		"All":          func() error { return s.All(end, func(*brig.Record) error { return nil }) },
		"Delete":       func() error { return s.Delete(end, r.ID) },
		"PutExec":      func() error { return s.PutExec(end, x) },
		"GetExec":      func() error { _, err := s.GetExec(end, r.ID, "x"); return err },
		"ListExecs":    func() error { _, err := s.ListExecs(end, r.ID); return err },
		"PutRun":       func() error { return s.PutRun(end, "t", &brig.Outcome{Sandbox: "r"}) },
		"GetRun":       func() error { _, err := s.GetRun(end, "t", "r"); return err },
		"ListRuns":     func() error { _, err := s.ListRuns(end, "t", brig.RunOptions{}); return err },
		"PruneRuns":    func() error { return s.PruneRuns(end, birth) },
		"PutKey":       func() error { return s.PutKey(end, brig.Key{}) },
		"FindKey":      func() error { _, err := s.FindKey(end, [32]byte{}); return err },
		"GetKey":       func() error { _, err := s.GetKey(end, "k"); return err },
		"ListKeys":     func() error { _, err := s.ListKeys(end, "t"); return err },
		"DeleteKey":    func() error { return s.DeleteKey(end, "k") },
		"TouchKeys":    func() error { return s.TouchKeys(end, map[string]time.Time{"k": birth}) },
		"PutTenant":    func() error { return s.PutTenant(end, &brig.Tenant{Name: "t"}) },
		"GetTenant":    func() error { _, err := s.GetTenant(end, "t"); return err },
		"Tenants":      func() error { _, err := s.Tenants(end); return err },
		"DeleteTenant": func() error { return s.DeleteTenant(end, "t") },
		"AddUsage":     func() error { return s.AddUsage(end, []brig.UsageLine{{Tenant: "t"}}) },
		"Usage":        func() error { _, err := s.Usage(end, "t", "a", "z"); return err },
		"PruneUsage":   func() error { return s.PruneUsage(end, "z") },
		"Append":       func() error { return s.Append(end, event("e")) },
		"Events":       func() error { _, err := s.Events(end, 1); return err },
		"Audit":        func() error { _, err := s.Audit(end, "t", brig.AuditQuery{}); return err },
		"AuditHeads":   func() error { _, err := s.AuditHeads(end); return err },
		"PruneAudit":   func() error { return s.PruneAudit(end, birth, 0) },
		"PutSecret":    func() error { return s.PutSecret(end, sealed("t", "x", 1), 0) },
		"GetSecret":    func() error { _, err := s.GetSecret(end, "t", "x"); return err },
		"Secrets":      func() error { _, err := s.Secrets(end, "t"); return err },
		"AllSecrets":   func() error { _, err := s.AllSecrets(end); return err },
		"DeleteSecret": func() error { return s.DeleteSecret(end, "t", "x") },
	} {
		if err := f(); brig.KindOf(err) != brig.Canceled {
			t.Errorf("%s under an ended context: %v, of kind %q", name, err, brig.KindOf(err))
		}
	}
	got, err := s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "the record", got, &want)
	checkEqual(t, "the refused record's Rev", r.Rev, want.Rev)
}
