package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/brig-run/brig"
)

// concurrency is the number of goroutines that call a store concurrently.
const concurrency = 20

// runConcurrently calls f in several goroutines concurrently and returns the
// errors.
func runConcurrently(f func(i int) error) []error {
	errs := make([]error, concurrency)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range concurrency {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// countSuccesses returns the number of calls without an error. The other calls must have failed
// with kind k.
func countSuccesses(t *testing.T, errs []error, k brig.Kind) int {
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

// testConflict changes one record from several goroutines with the same Rev. Only one change
// may succeed.
func testConflict(t *testing.T, s brig.Store) {
	ctx := t.Context()
	put(t, s, "t", "a")
	for round := range 5 {
		r, err := s.Get(ctx, "t", "a")
		mustSucceed(t, err)
		mine := make([]brig.Record, concurrency)
		errs := runConcurrently(func(i int) error {
			mine[i] = *r
			mine[i].Digest = fmt.Sprint(round, " ", i)
			return s.Put(ctx, &mine[i], event("cas"))
		})
		if n := countSuccesses(t, errs, brig.FailedPrecondition); n != 1 {
			t.Fatalf("round %d: %d of %d won", round, n, concurrency)
		}
		got, err := s.Get(ctx, "t", "a")
		mustSucceed(t, err)
		for i := range mine {
			if errs[i] == nil {
				checkEqual(t, "the winner's record", got, &mine[i])
			} else {
				checkEqual(t, "a loser's Rev", mine[i].Rev, r.Rev)
			}
		}
		checkEqual(t, "events", len(ops(t, s, 99)), round+1)
	}
}

// testNoLostUpdate increments a counter in one record once from each of several
// goroutines.
func testNoLostUpdate(t *testing.T, s brig.Store) {
	ctx := t.Context()
	put(t, s, "t", "a")
	for _, err := range runConcurrently(func(int) error {
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
		mustSucceed(t, err)
	}
	r, err := s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "the count", r.Spec.Limits.Processes, concurrency)
}

// testDuplicateNames inserts the same name, and the same ID, from several
// goroutines.
func testDuplicateNames(t *testing.T, s brig.Store) {
	ctx := t.Context()
	errs := runConcurrently(func(i int) error {
		r := record("t", "name")
		r.ID = brig.ID(fmt.Sprint("id-", i))
		return s.Put(ctx, r)
	})
	if n := countSuccesses(t, errs, brig.AlreadyExists); n != 1 {
		t.Errorf("%d of %d have the name", n, concurrency)
	}
	errs = runConcurrently(func(i int) error {
		r := record("t", fmt.Sprint("n", i))
		r.ID = "one-id"
		return s.Put(ctx, r)
	})
	if n := countSuccesses(t, errs, brig.AlreadyExists); n != 1 {
		t.Errorf("%d of %d have the id", n, concurrency)
	}
	if got := listAll(t, s, "t", brig.ListOptions{}); len(got) != 2 {
		t.Errorf("there are %v", names(got))
	}
}

// testMixed calls every method concurrently, for the race detector.
func testMixed(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for _, err := range runConcurrently(func(i int) error {
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
		do(s.AddUsage(ctx, []brig.UsageLine{{Tenant: tenant, Day: "2026-11-21", UsageTotals: brig.UsageTotals{Executions: 1}}}))
		_, err = s.Usage(ctx, tenant, "2026-11-21", "2026-11-21")
		do(err)
		_, err = s.Events(ctx, 5)
		do(err)
		do(s.PruneRuns(ctx, birth))
		do(s.Delete(ctx, r.ID, event("delete")))
		return errors.Join(errs...)
	}) {
		mustSucceed(t, err)
	}
	checkEqual(t, "events", len(ops(t, s, 99)), 2*concurrency)
	mustSucceed(t, s.All(ctx, func(r *brig.Record) error { return fmt.Errorf("%s is left", r.ID) }))
}
