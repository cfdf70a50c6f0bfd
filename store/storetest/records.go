package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func testInsert(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a := put(t, s, "t", "a")
	if a.Rev == 0 {
		t.Fatal("Put left Rev 0")
	}

	clone := record("t", "a")
	clone.ID = "id-other"
	kind(t, s.Put(ctx, clone), brig.AlreadyExists)
	if clone.Rev != 0 {
		t.Errorf("a refused insert set Rev to %d", clone.Rev)
	}
	_, err := s.Get(ctx, "t", "id-other")
	kind(t, err, brig.NotFound)

	if tenant, err := s.Owner(ctx, a.ID); err != nil || tenant != "t" {
		t.Errorf("Owner = %q, %v", tenant, err)
	}
	_, err = s.Owner(ctx, "a") // a name is not an ID
	kind(t, err, brig.NotFound)

	put(t, s, "u", "a") // the same name is available in another tenant

	for _, tenant := range []string{"t", "u"} {
		id := record(tenant, "b")
		id.ID = a.ID
		e := kind(t, s.Put(ctx, id), brig.AlreadyExists)
		if text := e.Error() + e.Hint; strings.Contains(text, `"a"`) || strings.Contains(text, `"t"`) {
			t.Errorf("%q tells what the id's owner has", text)
		}
		_, err = s.Get(ctx, tenant, "b")
		kind(t, err, brig.NotFound)
	}
	got, err := s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "after refused inserts", got, a)
}

func testUpdate(t *testing.T, s brig.Store) {
	ctx := t.Context()
	r := put(t, s, "t", "a")
	stale := *r
	r.State = brig.Stopping
	mustSucceed(t, s.Put(ctx, r))
	if r.Rev == stale.Rev {
		t.Fatal("a Put did not move Rev")
	}
	got, err := s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "after an update", got, r)

	before := stale.Rev
	stale.State = brig.Ended
	kind(t, s.Put(ctx, &stale), brig.FailedPrecondition)
	if stale.Rev != before {
		t.Errorf("a refused update set Rev to %d", stale.Rev)
	}
	got, err = s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "after a refused update", got, r)

	t.Run("Rename", func(t *testing.T) {
		put(t, s, "t", "b")
		taken := *r
		taken.Spec.Name = "b"
		kind(t, s.Put(ctx, &taken), brig.AlreadyExists)
		r.Spec.Name = "c"
		mustSucceed(t, s.Put(ctx, r))
		_, err := s.Get(ctx, "t", "a")
		kind(t, err, brig.NotFound)
		got, err := s.Get(ctx, "t", "c")
		mustSucceed(t, err)
		checkEqual(t, "by its new name", got, r)
		again := record("t", "a")
		again.ID = "id-again"
		mustSucceed(t, s.Put(ctx, again)) // the old name is free
	})
	t.Run("Gone", func(t *testing.T) {
		gone := put(t, s, "t", "gone")
		mustSucceed(t, s.Delete(ctx, gone.ID))
		kind(t, s.Put(ctx, gone), brig.FailedPrecondition)
		absent := record("t", "never")
		absent.Rev = 7
		kind(t, s.Put(ctx, absent), brig.FailedPrecondition)
		_, err := s.Get(ctx, "t", "never")
		kind(t, err, brig.NotFound)
	})
}

// testTenants verifies that a sandbox of another tenant cannot be distinguished from one that
// never existed.
func testTenants(t *testing.T, s brig.Store) {
	ctx := t.Context()
	mine, theirs := put(t, s, "t", "a"), put(t, s, "u", "b")
	for _, by := range []string{"a", string(mine.ID)} {
		got, err := s.Get(ctx, "t", by)
		mustSucceed(t, err)
		checkEqual(t, "Get "+by, got, mine)
	}
	text := func(name string) string {
		_, err := s.Get(ctx, "t", name)
		e := kind(t, err, brig.NotFound)
		return strings.ReplaceAll(fmt.Sprint(e.Message, e.Field, e.Hint, e.Err), fmt.Sprintf("%q", name), "*")
	}
	notFoundText := text("never")
	for _, name := range []string{"b", string(theirs.ID)} {
		if got := text(name); got != notFoundText {
			t.Errorf("another tenant's %s is %q, one that never was %q", name, got, notFoundText)
		}
	}
	_, err := s.Get(ctx, "", "a")
	kind(t, err, brig.NotFound)
	if got := names(listAll(t, s, "t", brig.ListOptions{})); !slices.Equal(got, []string{"a"}) {
		t.Errorf("tenant t lists %v", got)
	}
	if got := listAll(t, s, "nobody", brig.ListOptions{}); len(got) != 0 {
		t.Errorf("a tenant without sandboxes lists %v", names(got))
	}

	// An ID identifies its sandbox permanently, regardless of other sandboxes'
	// names.
	put(t, s, "t", string(mine.ID))
	got, err := s.Get(ctx, "t", string(mine.ID))
	mustSucceed(t, err)
	checkEqual(t, "by an id that is also a name", got, mine)
	put(t, s, "t", string(theirs.ID))
	got, err = s.Get(ctx, "t", string(theirs.ID))
	mustSucceed(t, err)
	checkEqual(t, "by a name that is another tenant's id", got.Spec.Name, string(theirs.ID))
}

func testAll(t *testing.T, s brig.Store) {
	ctx := t.Context()
	mustSucceed(t, s.All(ctx, func(*brig.Record) error { return errors.New("called for nothing") }))
	want := map[string]*brig.Record{}
	for i := range 105 { // more than any batch
		r := put(t, s, fmt.Sprint("t", i%3), fmt.Sprint("n", i))
		want[r.Spec.Name] = r
	}
	got := map[string]*brig.Record{}
	mustSucceed(t, s.All(ctx, func(r *brig.Record) error {
		got[r.Spec.Name] = r
		return nil
	}))
	checkEqual(t, "All", got, want)

	stop, calls := errors.New("stop"), 0
	err := s.All(ctx, func(*brig.Record) error {
		if calls++; calls == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || calls != 3 {
		t.Errorf("after an error: %v, %d calls", err, calls)
	}

	// A server uses All to change records when it starts.
	calls = 0
	mustSucceed(t, s.All(ctx, func(r *brig.Record) error {
		if calls++; calls%2 == 0 {
			return s.Delete(ctx, r.ID)
		}
		r.State = brig.Ended
		return s.Put(ctx, r)
	}))
	if calls != len(want) {
		t.Errorf("All called f %d times, want %d", calls, len(want))
	}
	mustSucceed(t, s.All(ctx, func(r *brig.Record) error {
		calls--
		if r.State != brig.Ended {
			return fmt.Errorf("%s is %s", r.Spec.Name, r.State)
		}
		return nil
	}))
	if calls != len(want)/2 {
		t.Errorf("%d records were deleted, want %d", calls, len(want)/2)
	}
}

func testDelete(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a, b := put(t, s, "t", "a"), put(t, s, "t", "b")
	for _, id := range []brig.ID{a.ID, b.ID} {
		mustSucceed(t, s.PutExec(ctx, &brig.Execution{Sandbox: id, Result: brig.Result{ExecID: "x"}}))
	}
	mustSucceed(t, s.Delete(ctx, a.ID, event("first")))
	mustSucceed(t, s.Delete(ctx, a.ID, event("second")))
	mustSucceed(t, s.Delete(ctx, "never"))
	checkEqual(t, "events", ops(t, s, 9), []string{"second", "first"})
	for _, name := range []string{"a", string(a.ID)} {
		_, err := s.Get(ctx, "t", name)
		kind(t, err, brig.NotFound)
	}
	_, err := s.GetExec(ctx, a.ID, "x")
	kind(t, err, brig.NotFound)
	xs, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	if len(xs) != 0 {
		t.Errorf("%d executions outlived their sandbox", len(xs))
	}
	if _, err := s.GetExec(ctx, b.ID, "x"); err != nil {
		t.Errorf("another sandbox's execution: %v", err)
	}

	again := record("t", "a") // the name can be reused, and the old data does not reappear
	again.ID = "id-new"
	mustSucceed(t, s.Put(ctx, again))
	got, err := s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "the new one", got, again)
}
