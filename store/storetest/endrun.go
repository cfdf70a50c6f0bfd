package storetest

import (
	"context"
	"testing"

	"github.com/brig-run/brig"
)

// testEndRun verifies that the end of a run is one transaction that removes the sandbox and its
// executions, and adds the outcome and the events.
func testEndRun(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a, b := put(t, s, "t", "sh-1"), put(t, s, "t", "sh-2")
	theirs := put(t, s, "u", "sh-1")
	for _, id := range []brig.ID{a.ID, b.ID, theirs.ID} {
		mustSucceed(t, s.PutExec(ctx, execution(id, "x", 1)))
	}
	o := &brig.Outcome{
		Sandbox: "sh-1", Value: []byte(`1`), Pool: brig.PoolHit, Result: brig.Result{ExecID: "x", ExitCode: 3, Done: true},
		Artifacts: []brig.File{{Path: "a.csv", Data: []byte("a")}}, Error: &brig.ProgramError{Name: "ValueError"},
	}
	mustSucceed(t, s.EndRun(ctx, a.ID, "t", o, event("one"), event("two")))
	for _, name := range []string{"sh-1", string(a.ID)} {
		_, err := s.Get(ctx, "t", name)
		kind(t, err, brig.NotFound)
	}
	_, err := s.GetExec(ctx, a.ID, "x")
	kind(t, err, brig.NotFound)
	xs, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "executions that outlived their sandbox", len(xs), 0)
	got, err := s.GetRun(ctx, "t", "sh-1")
	mustSucceed(t, err)
	checkEqual(t, "the outcome", got, o)
	checkEqual(t, "events", ops(t, s, 9), []string{"two", "one"})

	// Records of other sandboxes and tenants are unchanged.
	for tenant, r := range map[string]*brig.Record{"t": b, "u": theirs} {
		still, err := s.Get(ctx, tenant, string(r.ID))
		mustSucceed(t, err)
		checkEqual(t, "another record", still, r)
		if _, err := s.GetExec(ctx, r.ID, "x"); err != nil {
			t.Errorf("another sandbox's execution: %v", err)
		}
	}
	_, err = s.GetRun(ctx, "u", "sh-1")
	kind(t, err, brig.NotFound)

	// The name can be reused, and the next outcome replaces the first outcome. A missing
	// sandbox is not an error, and its outcome is still stored.
	again := record("t", "sh-1")
	again.ID = "id-again"
	mustSucceed(t, s.Put(ctx, again))
	second := &brig.Outcome{Sandbox: "sh-1", Value: []byte(`2`)}
	mustSucceed(t, s.EndRun(ctx, again.ID, "t", second))
	mustSucceed(t, s.EndRun(ctx, "never", "t", second, event("three")))
	got, err = s.GetRun(ctx, "t", "sh-1")
	mustSucceed(t, err)
	checkEqual(t, "the second outcome", got, second)
	checkEqual(t, "events", ops(t, s, 9), []string{"three", "two", "one"})

	// The store must not retain the value that the caller passed.
	second.Value[0] = '9'
	got, err = s.GetRun(ctx, "t", "sh-1")
	mustSucceed(t, err)
	checkEqual(t, "the value", string(got.Value), "2")
}

// testEndRunIsAtomic checks that a failed EndRun changes nothing.
func testEndRunIsAtomic(t *testing.T, s brig.Store) {
	ctx := t.Context()
	r := put(t, s, "t", "sh-1")
	mustSucceed(t, s.PutExec(ctx, execution(r.ID, "x", 1)))
	before := &brig.Outcome{Sandbox: "sh-1", Value: []byte(`"before"`)}
	mustSucceed(t, s.PutRun(ctx, "t", before, event("before")))
	for name, ctx := range map[string]context.Context{"a caller who has gone": canceled(t)} {
		if s.EndRun(ctx, r.ID, "t", &brig.Outcome{Sandbox: "sh-1"}, event("after")) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	got, err := s.Get(ctx, "t", "sh-1")
	mustSucceed(t, err)
	checkEqual(t, "the record", got, r)
	if _, err := s.GetExec(ctx, r.ID, "x"); err != nil {
		t.Errorf("its execution: %v", err)
	}
	o, err := s.GetRun(ctx, "t", "sh-1")
	mustSucceed(t, err)
	checkEqual(t, "the outcome of old", o, before)
	checkEqual(t, "events", ops(t, s, 9), []string{"before"})
}

// testPutErrors verifies that a rejected write changes nothing and returns an error of the
// right kind, even if it is rejected for several reasons.
func testPutErrors(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a, b := put(t, s, "t", "a"), put(t, s, "t", "b")
	stale := *a
	mustSucceed(t, s.Put(ctx, a))
	with := func(r brig.Record, change func(*brig.Record)) *brig.Record { change(&r); return &r }
	for name, c := range map[string]struct {
		r    *brig.Record
		want brig.Kind
	}{
		"a new one with a taken name":        {with(*record("t", "a"), func(r *brig.Record) { r.ID = "id-new" }), brig.AlreadyExists},
		"a new one with a taken id":          {with(*record("t", "c"), func(r *brig.Record) { r.ID = a.ID }), brig.AlreadyExists},
		"a new one with both":                {with(*record("t", "b"), func(r *brig.Record) { r.ID = a.ID }), brig.AlreadyExists},
		"a new one, exactly as it was":       {record("t", "a"), brig.AlreadyExists},
		"one of old":                         {&stale, brig.FailedPrecondition},
		"one of old with a taken name":       {with(stale, func(r *brig.Record) { r.Spec.Name = "b" }), brig.FailedPrecondition},
		"one from the future":                {with(*a, func(r *brig.Record) { r.Rev += 7 }), brig.FailedPrecondition},
		"one that was never":                 {with(*record("t", "c"), func(r *brig.Record) { r.Rev = 1 }), brig.FailedPrecondition},
		"one that was never, its name taken": {with(*record("t", "a"), func(r *brig.Record) { r.ID, r.Rev = "id-new", 1 }), brig.FailedPrecondition},
		"one that takes another's name":      {with(*a, func(r *brig.Record) { r.Spec.Name = "b" }), brig.AlreadyExists},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.r.Rev
			kind(t, s.Put(ctx, c.r, event("refused")), c.want)
			if c.r.Rev != before {
				t.Errorf("a refused Put set Rev to %d", c.r.Rev)
			}
		})
	}
	checkEqual(t, "events of what was refused", ops(t, s, 9), []string(nil))
	for _, r := range []*brig.Record{a, b} {
		got, err := s.Get(ctx, "t", string(r.ID))
		mustSucceed(t, err)
		checkEqual(t, "after all", got, r)
	}
	checkEqual(t, "records", len(listAll(t, s, "t", brig.ListOptions{})), 2)
	// A valid write still succeeds.
	mustSucceed(t, s.Put(ctx, a, event("fine")))
	checkEqual(t, "events", ops(t, s, 9), []string{"fine"})
}
