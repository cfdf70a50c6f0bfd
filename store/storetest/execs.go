package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func execution(sandbox brig.ID, id string, started time.Duration) *brig.Execution {
	return &brig.Execution{
		Sandbox: sandbox,
		Command: brig.Command{Argv: []string{"true"}},
		Result:  brig.Result{ExecID: id, Started: birth.Add(started)},
	}
}

func testExecs(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a, b := put(t, s, "t", "a"), put(t, s, "t", "b")
	_, err := s.GetExec(ctx, a.ID, "x1")
	kind(t, err, brig.NotFound)
	none, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	if len(none) != 0 {
		t.Errorf("a new sandbox has %d executions", len(none))
	}

	// The executions are written in a different order than they started. The same ID exists in
	// two sandboxes.
	x2, x1, x3 := execution(a.ID, "x2", 2), execution(a.ID, "x1", 1), execution(a.ID, "x3", time.Second)
	theirs := execution(b.ID, "x1", 9)
	for _, x := range []*brig.Execution{x2, x1, x3, theirs} {
		mustSucceed(t, s.PutExec(ctx, x))
	}
	x1.Done, x1.ExitCode, x1.Stdout.Head = true, 7, []byte("out")
	mustSucceed(t, s.PutExec(ctx, x1)) // replaces the previous version
	got, err := s.GetExec(ctx, a.ID, "x1")
	mustSucceed(t, err)
	checkEqual(t, "a replaced execution", got, x1)
	late := execution(a.ID, "x1", 1)
	late.Stdout.Head = []byte("o")
	mustSucceed(t, s.PutExec(ctx, late)) // the output so far, after the end
	got, err = s.GetExec(ctx, a.ID, "x1")
	mustSucceed(t, err)
	checkEqual(t, "an ended execution after a late record of its run", got, x1)
	got, err = s.GetExec(ctx, b.ID, "x1")
	mustSucceed(t, err)
	checkEqual(t, "another sandbox's execution", got, theirs)

	list, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "ListExecs", list, []*brig.Execution{x3, x2, x1})
	x1.Started = birth.Add(time.Hour)
	mustSucceed(t, s.PutExec(ctx, x1))
	list, err = s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "after one moved", list, []*brig.Execution{x1, x3, x2})

	// Writing a sandbox's record keeps its executions.
	mustSucceed(t, s.Put(ctx, a))
	list, err = s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "after the sandbox changed", len(list), 3)
}

// testExecOfDeletedSandbox verifies that an execution that ends after its sandbox was deleted
// is not stored, because no later call would delete it.
func testExecOfDeletedSandbox(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a := put(t, s, "t", "a")
	mustSucceed(t, s.Delete(ctx, a.ID))
	kind(t, s.PutExec(ctx, execution(a.ID, "late", 1)), brig.NotFound)
	_, err := s.GetExec(ctx, a.ID, "late")
	kind(t, err, brig.NotFound)
}

func testRuns(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.GetRun(ctx, "t", "py-1")
	kind(t, err, brig.NotFound)
	first := &brig.Outcome{Sandbox: "py-1", Value: []byte(`1`), Artifacts: []brig.File{{Path: "a", Data: []byte("a")}}}
	theirs := &brig.Outcome{Sandbox: "py-1", Value: []byte(`2`)}
	mustSucceed(t, s.PutRun(ctx, "t", first, event("one"), event("two")))
	mustSucceed(t, s.PutRun(ctx, "u", theirs))
	for tenant, want := range map[string]*brig.Outcome{"t": first, "u": theirs} {
		got, err := s.GetRun(ctx, tenant, "py-1")
		mustSucceed(t, err)
		checkEqual(t, "run of "+tenant, got, want)
	}
	_, err = s.GetRun(ctx, "v", "py-1")
	kind(t, err, brig.NotFound)

	second := &brig.Outcome{Sandbox: "py-1", Error: &brig.ProgramError{Name: "ValueError"}}
	mustSucceed(t, s.PutRun(ctx, "t", second, event("three")))
	got, err := s.GetRun(ctx, "t", "py-1")
	mustSucceed(t, err)
	checkEqual(t, "a replaced run", got, second)
	checkEqual(t, "events", ops(t, s, 9), []string{"three", "two", "one"})

	// A run cannot be read as a sandbox.
	_, err = s.Get(ctx, "t", "py-1")
	kind(t, err, brig.NotFound)
}

// testListRuns verifies the order, the pages and the filter of a list of runs.
func testListRuns(t *testing.T, s brig.Store) {
	ctx := t.Context()
	put := func(tenant, name string, o brig.Outcome) {
		t.Helper()
		o.Sandbox = name
		mustSucceed(t, s.PutRun(ctx, tenant, &o))
	}
	exited := brig.Outcome{Result: brig.Result{ExitCode: 3}}
	whole := brig.Outcome{
		Result: brig.Result{
			ExitCode: 1, Signal: "SIGTERM", Started: birth, Duration: time.Second,
			Stdout: brig.Output{Head: []byte("\xffout"), Tail: []byte("t"), Total: 9}, Stderr: brig.Output{Total: 2},
		},
		ID: "id", Value: []byte(`[1]`), Artifacts: []brig.File{{Path: "a", Data: []byte("a")}, {Path: "b"}}, Image: "img",
		Error: &brig.ProgramError{Code: "SB005", Name: "e", Message: "m\xff", Traceback: "long", Hint: "h"},
		Route: brig.Route{Provider: "p", Reason: "r"}, Pool: brig.PoolHit,
	}
	names := []string{"a", "b", "c", "d", "e", "f"}
	for i, o := range []brig.Outcome{{}, exited, {Result: brig.Result{TimedOut: true, ExitCode: 124}}, {Result: brig.Result{OOMKilled: true, ExitCode: 137}}, exited, whole} {
		put("t", names[i], o)
	}
	put("u", "theirs", exited)
	list := func(o brig.RunOptions) (got []string, next string) {
		t.Helper()
		page, err := s.ListRuns(ctx, "t", o)
		mustSucceed(t, err)
		for _, r := range page.Runs {
			got = append(got, r.Sandbox)
		}
		return got, page.Next
	}
	all := func(o brig.RunOptions) (got []string) {
		t.Helper()
		for range 10 {
			page, next := list(o)
			got = append(got, page...)
			if o.Cursor = next; next == "" {
				return got
			}
		}
		t.Error("the pages do not end")
		return got
	}
	for _, limit := range []int{0, 1, 2, 5, 6, 1000} {
		checkEqual(t, fmt.Sprint("pages of ", limit), all(brig.RunOptions{Limit: limit}), []string{"f", "e", "d", "c", "b", "a"})
	}
	for status, want := range map[brig.RunStatus][]string{
		brig.RunSuccess: {"a"}, brig.RunError: {"f", "e", "b"}, brig.RunTimeout: {"c"}, brig.RunOutOfMemory: {"d"}, brig.RunFailed: nil,
	} {
		for _, limit := range []int{1, 2, 100} {
			checkEqual(t, fmt.Sprint(status, " in pages of ", limit), all(brig.RunOptions{Statuses: []brig.RunStatus{status}, Limit: limit}), want)
		}
	}
	checkEqual(t, "two statuses", all(brig.RunOptions{Statuses: []brig.RunStatus{brig.RunTimeout, brig.RunOutOfMemory}}), []string{"d", "c"})
	page, err := s.ListRuns(ctx, "t", brig.RunOptions{Limit: 1})
	mustSucceed(t, err)
	whole.Sandbox = "f"
	checkEqual(t, "a summary", page.Runs[0], whole.Summary())
	// The cursor contains a position and does not depend on the run.
	_, next := list(brig.RunOptions{Limit: 2})
	put("t", "e", brig.Outcome{})
	put("t", "g", brig.Outcome{})
	if got, _ := list(brig.RunOptions{Cursor: next}); !slices.Equal(got, []string{"d", "c", "b", "a"}) {
		t.Errorf("the second page is %q", got)
	}
	for _, o := range []brig.RunOptions{{Limit: -1}, {Limit: 1001}, {Cursor: "no cursor"}} {
		_, err := s.ListRuns(ctx, "t", o)
		kind(t, err, brig.InvalidArgument)
	}
}

func testPruneRuns(t *testing.T, s brig.Store) {
	ctx := t.Context()
	putRun := func(name string) {
		t.Helper()
		mustSucceed(t, s.PutRun(ctx, "t", &brig.Outcome{Sandbox: name, Result: brig.Result{Started: birth}}))
	}
	putRun("old")
	putRun("renewed")
	// The clock must advance between the earlier and the later writes.
	cut := time.Now().Add(1)
	for !time.Now().After(cut) {
		continue
	}
	cut = time.Now()
	putRun("new")
	putRun("renewed")
	mustSucceed(t, s.PruneRuns(ctx, cut))
	_, err := s.GetRun(ctx, "t", "old")
	kind(t, err, brig.NotFound)
	for _, name := range []string{"new", "renewed"} {
		if _, err := s.GetRun(ctx, "t", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustSucceed(t, s.PruneRuns(ctx, time.Time{}))
	if _, err := s.GetRun(ctx, "t", "new"); err != nil {
		t.Errorf("after pruning up to the zero time: %v", err)
	}
}

// testLargeRuns verifies that a page of runs with long errors is short, even if the runs are
// filtered out, and that the pages together contain all runs.
func testLargeRuns(t *testing.T, s brig.Store) {
	ctx := t.Context()
	long := &brig.ProgramError{Name: "e", Message: "m", Traceback: strings.Repeat("t", 1<<20)}
	const runs = 20
	for i := range runs {
		mustSucceed(t, s.PutRun(ctx, "t", &brig.Outcome{Sandbox: fmt.Sprint("r", i), Error: long}))
	}
	for status, want := range map[brig.RunStatus]int{brig.RunError: runs, brig.RunTimeout: 0} {
		found, pages := 0, 0
		for o := (brig.RunOptions{Statuses: []brig.RunStatus{status}}); pages == 0 || o.Cursor != ""; pages++ {
			page, err := s.ListRuns(ctx, "t", o)
			mustSucceed(t, err)
			found, o.Cursor = found+len(page.Runs), page.Next
		}
		if found != want || pages < 2 || pages > runs {
			t.Errorf("%s: %d runs in %d pages, want %d in a few", status, found, pages, want)
		}
	}
}

// testLargeExecs verifies that a list of executions contains every execution but has a bounded
// size. For running executions, the list omits only the output.
func testLargeExecs(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a := put(t, s, "t", "a")
	const count, each, maxTotal = 20, 1 << 20, 10 << 20
	large := strings.Repeat("x", each)
	running := execution(a.ID, "running", -1)
	running.Command.Env = map[string]string{"LARGE": large}
	mustSucceed(t, s.PutExec(ctx, running))
	writes := execution(a.ID, "writes", -2)
	writes.Stdout = brig.Output{Head: []byte(large), Total: each}
	mustSucceed(t, s.PutExec(ctx, writes))
	var all []*brig.Execution
	for i := range count {
		x := execution(a.ID, fmt.Sprint("x", i), time.Duration(i))
		x.Done = true
		if i%2 == 0 {
			x.Stdout = brig.Output{Head: []byte(large), Total: each}
		} else {
			x.Command = brig.Command{Shell: large}
		}
		mustSucceed(t, s.PutExec(ctx, x))
		all = slices.Insert(all, 0, x)
	}
	list, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "number of executions", len(list), count+2)
	checkEqual(t, "the newest", list[0], all[0])
	checkEqual(t, "the one that runs", list[count], running)
	short := *writes
	short.Stdout.Head = nil
	checkEqual(t, "the one that runs, with output", list[count+1], &short)
	got, err := s.GetExec(ctx, a.ID, "writes")
	mustSucceed(t, err)
	checkEqual(t, "the one that runs, with output, by itself", got, writes)
	size := 0
	for i, x := range list[:count] {
		size += len(x.Stdout.Head) + len(x.Command.Shell)
		checkEqual(t, "the ID of "+x.ExecID, x.ExecID, all[i].ExecID)
		checkEqual(t, "the size of the output of "+x.ExecID, x.Stdout.Total, all[i].Stdout.Total)
	}
	if size > maxTotal {
		t.Errorf("the list has %d bytes, want at most %d", size, maxTotal)
	}
	last := all[count-1]
	checkEqual(t, "the command of the oldest", list[count-1].Command, last.Command)
	got, err = s.GetExec(ctx, a.ID, last.ExecID)
	mustSucceed(t, err)
	checkEqual(t, "the oldest by itself", got, last)
}
