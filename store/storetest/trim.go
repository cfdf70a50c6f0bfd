package storetest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// unbounded has limits that are never reached.
var unbounded = brig.Keep{Executions: 1 << 30, Outputs: 1 << 30, Runs: 1 << 30, Ended: 1 << 30, Bytes: 1 << 60}

// noisyExecution returns an ended execution with size bytes of output.
func noisyExecution(sandbox brig.ID, i, size int) *brig.Execution {
	x := execution(sandbox, fmt.Sprintf("x%03d", i), time.Duration(i)*time.Second)
	x.Done = true
	x.Stdout = brig.Output{Head: bytes.Repeat([]byte{byte(i)}, size/2), Tail: bytes.Repeat([]byte{byte(i + 1)}, size-size/2), Total: int64(size) * 10}
	return x
}

func testTrimExecs(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a, b := put(t, s, "t", "a"), put(t, s, "t", "b")
	for i := range 10 {
		x := noisyExecution(a.ID, i, 10<<10)
		x.Done = i > 0
		mustSucceed(t, s.PutExec(ctx, x))
		mustSucceed(t, s.PutExec(ctx, noisyExecution(b.ID, i, 10<<10)))
	}
	small := noisyExecution(a.ID, 1, 100) // replaces a large execution
	mustSucceed(t, s.PutExec(ctx, small))
	running := noisyExecution(a.ID, 0, 10<<10)
	running.Done = false

	mustSucceed(t, s.Trim(ctx, "t", a.ID, unbounded))
	list, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "what a bound that is not reached takes", len(list), 10)

	keep := unbounded
	keep.Outputs = 3
	mustSucceed(t, s.Trim(ctx, "t", a.ID, keep))
	for i := range 10 {
		got, err := s.GetExec(ctx, a.ID, fmt.Sprintf("x%03d", i))
		mustSucceed(t, err)
		want := noisyExecution(a.ID, i, 10<<10)
		switch {
		case i == 0: // the execution is still running
			want = running
		case i == 1: // the output is small
			want = small
		case i < 7:
			want.Stdout.Head, want.Stdout.Tail = nil, nil
			if !got.Truncated() {
				t.Errorf("execution %d does not say that its output is not all there", i)
			}
		}
		checkEqual(t, fmt.Sprint("execution ", i), got, want)
	}

	keep.Executions = 4
	mustSucceed(t, s.Trim(ctx, "t", a.ID, keep))
	list, err = s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "the newest four, and what goes on", ids(list), []string{"x009", "x008", "x007", "x006", "x000"})
	list, err = s.ListExecs(ctx, b.ID)
	mustSucceed(t, err)
	checkEqual(t, "another sandbox's executions", len(list), 10)
	checkEqual(t, "the newest of another sandbox", list[0], noisyExecution(b.ID, 9, 10<<10))

	// Trim all sandboxes of a tenant. In an ended sandbox, every execution counts as ended.
	a.State = brig.Ended
	mustSucceed(t, s.Put(ctx, a))
	mustSucceed(t, s.Trim(ctx, "t", "", keep))
	for _, id := range []brig.ID{a.ID, b.ID} {
		list, err = s.ListExecs(ctx, id)
		mustSucceed(t, err)
		checkEqual(t, "of every sandbox", ids(list), []string{"x009", "x008", "x007", "x006"})
	}
}

func ids(list []*brig.Execution) (out []string) {
	for _, x := range list {
		out = append(out, x.ExecID)
	}
	return out
}

func testTrimRuns(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for i := range 9 {
		for _, tenant := range []string{"t", "u"} {
			mustSucceed(t, s.PutRun(ctx, tenant, &brig.Outcome{Sandbox: fmt.Sprint("r", i)}))
		}
		time.Sleep(time.Millisecond) // the clock determines the order
	}
	keep := unbounded
	keep.Runs = 2
	mustSucceed(t, s.Trim(ctx, "t", "", keep))
	for i := range 9 {
		_, err := s.GetRun(ctx, "t", fmt.Sprint("r", i))
		if i >= 7 {
			mustSucceed(t, err)
		} else {
			kind(t, err, brig.NotFound)
		}
		_, err = s.GetRun(ctx, "u", fmt.Sprint("r", i))
		mustSucceed(t, err)
	}
}

// testTrimBytes verifies that the oldest records of any kind are deleted, and that no records
// of other tenants are deleted.
func testTrimBytes(t *testing.T, s brig.Store) {
	ctx := t.Context()
	a, theirs := put(t, s, "t", "a"), put(t, s, "u", "theirs")
	const size = 64 << 10
	for i := range 8 {
		mustSucceed(t, s.PutExec(ctx, noisyExecution(a.ID, i, size)))
		mustSucceed(t, s.PutExec(ctx, noisyExecution(theirs.ID, i, size)))
	}
	// The outcome is written now, long after the executions started.
	mustSucceed(t, s.PutRun(ctx, "t", &brig.Outcome{Sandbox: "r", Value: []byte(`1`), Artifacts: []brig.File{{Path: "a", Data: make([]byte, size)}}}))
	keep := unbounded
	keep.Bytes = 5 * size
	mustSucceed(t, s.Trim(ctx, "t", a.ID, keep))
	list, err := s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	if n := len(list); n == 0 || n > 4 || list[0].ExecID != "x007" {
		t.Errorf("%v are kept of %d bytes", ids(list), keep.Bytes)
	}
	_, err = s.GetRun(ctx, "t", "r")
	mustSucceed(t, err)
	list, err = s.ListExecs(ctx, theirs.ID)
	mustSucceed(t, err)
	checkEqual(t, "another tenant's executions", len(list), 8)

	keep.Bytes = 1
	mustSucceed(t, s.Trim(ctx, "t", "", keep))
	list, err = s.ListExecs(ctx, a.ID)
	mustSucceed(t, err)
	checkEqual(t, "executions within a byte", len(list), 0)
	_, err = s.GetRun(ctx, "t", "r")
	kind(t, err, brig.NotFound)

	// Deleted records no longer count.
	mustSucceed(t, s.Delete(ctx, theirs.ID))
	again := put(t, s, "u", "again")
	x := noisyExecution(again.ID, 1, size)
	mustSucceed(t, s.PutExec(ctx, x))
	keep.Bytes = 3 * size
	mustSucceed(t, s.Trim(ctx, "u", again.ID, keep))
	got, err := s.GetExec(ctx, again.ID, x.ExecID)
	mustSucceed(t, err)
	checkEqual(t, "after a deletion", got, x)
}
