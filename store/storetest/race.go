package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/brig-run/brig"
)

// crowd is how many goroutines want the same thing at once.
const crowd = 20

// together calls f in a crowd of goroutines at once and returns its errors.
func together(f func(i int) error) []error {
	errs := make([]error, crowd)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// winners counts who had no error; the others' is to be of kind k.
func winners(t *testing.T, errs []error, k brig.Kind) int {
	t.Helper()
	n := 0
	for _, err := range errs {
		if err == nil {
			n++
		} else {
			kind(t, err, k)
		}
	}
	return n
}

// testOneWinner lets a crowd change one record of the same Rev.
func testOneWinner(t *testing.T, s brig.Store) {
	ctx := t.Context()
	put(t, s, "t", "a")
	for round := range 5 {
		r, err := s.Get(ctx, "t", "a")
		ok(t, err)
		mine := make([]brig.Record, crowd)
		errs := together(func(i int) error {
			mine[i] = *r
			mine[i].Digest = fmt.Sprint(round, " ", i)
			return s.Put(ctx, &mine[i], event("cas"))
		})
		if n := winners(t, errs, brig.FailedPrecondition); n != 1 {
			t.Fatalf("round %d: %d of %d won", round, n, crowd)
		}
		got, err := s.Get(ctx, "t", "a")
		ok(t, err)
		for i := range mine {
			if errs[i] == nil {
				same(t, "the winner's record", got, &mine[i])
			} else {
				same(t, "a loser's Rev", mine[i].Rev, r.Rev)
			}
		}
		same(t, "events", len(ops(t, s, 99)), round+1)
	}
}

// testNoLostUpdate lets a crowd count in one record, each once.
func testNoLostUpdate(t *testing.T, s brig.Store) {
	ctx := t.Context()
	put(t, s, "t", "a")
	for _, err := range together(func(int) error {
		for {
			r, err := s.Get(ctx, "t", "a")
			if err != nil {
				return err
			}
			r.Spec.Limits.Processes++
			err = s.Put(ctx, r)
			if e, is := errors.AsType[*brig.Error](err); is && e.Kind == brig.FailedPrecondition {
				continue
			}
			return err
		}
	}) {
		ok(t, err)
	}
	r, err := s.Get(ctx, "t", "a")
	ok(t, err)
	same(t, "the count", r.Spec.Limits.Processes, crowd)
}

// testOneName lets a crowd insert the same name, and the same id.
func testOneName(t *testing.T, s brig.Store) {
	ctx := t.Context()
	errs := together(func(i int) error {
		r := record("t", "name")
		r.ID = brig.ID(fmt.Sprint("id-", i))
		return s.Put(ctx, r)
	})
	if n := winners(t, errs, brig.AlreadyExists); n != 1 {
		t.Errorf("%d of %d have the name", n, crowd)
	}
	errs = together(func(i int) error {
		r := record("t", fmt.Sprint("n", i))
		r.ID = "one-id"
		return s.Put(ctx, r)
	})
	if n := winners(t, errs, brig.AlreadyExists); n != 1 {
		t.Errorf("%d of %d have the id", n, crowd)
	}
	if got := everything(t, s, "t", brig.ListOptions{}); len(got) != 2 {
		t.Errorf("there are %v", names(got))
	}
}

// testMixed uses every method at once; the race detector watches.
func testMixed(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for _, err := range together(func(i int) error {
		tenant, name := fmt.Sprint("t", i%3), fmt.Sprint("n", i)
		r := record(tenant, name)
		var errs []error
		do := func(err error) { errs = append(errs, err) }
		do(s.Put(ctx, r, event("put")))
		do(s.PutExec(ctx, execution(r.ID, "x", 1)))
		_, err := s.ListExecs(ctx, r.ID)
		do(err)
		_, _, err = s.List(ctx, tenant, brig.ListOptions{Limit: 2})
		do(err)
		do(s.All(ctx, func(*brig.Record) error { return nil }))
		do(s.PutRun(ctx, tenant, &brig.Outcome{Sandbox: name}))
		_, err = s.GetRun(ctx, tenant, name)
		do(err)
		do(s.PutKey(ctx, brig.Key{ID: name, Hash: [32]byte{byte(i)}}))
		_, err = s.FindKey(ctx, [32]byte{byte(i)})
		do(err)
		do(s.AddUsage(ctx, []brig.UsageLine{{Tenant: tenant, Day: "2026-11-21", Spent: brig.Spent{Executions: 1}}}))
		_, err = s.Usage(ctx, tenant, "2026-11-21", "2026-11-21")
		do(err)
		_, err = s.Events(ctx, 5)
		do(err)
		do(s.PruneRuns(ctx, birth))
		do(s.Delete(ctx, r.ID, event("delete")))
		return errors.Join(errs...)
	}) {
		ok(t, err)
	}
	same(t, "events", len(ops(t, s, 99)), 2*crowd)
	ok(t, s.All(ctx, func(r *brig.Record) error { return fmt.Errorf("%s is left", r.ID) }))
}
