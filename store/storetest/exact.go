package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// testRoundTrip verifies that a read returns exactly the written value, for values with every
// field set, with no field set, and with empty values that are not nil. It also verifies that
// the store shares no memory with the caller on write or read.
func testRoundTrip(t *testing.T, s brig.Store) {
	ctx := t.Context()
	sandbox := put(t, s, "t", "of-executions").ID
	makes := map[string]struct {
		record  func() *brig.Record
		exec    func() *brig.Execution
		outcome func() *brig.Outcome
	}{
		"full": {
			func() *brig.Record { return filled[brig.Record](t, false) },
			func() *brig.Execution { return filled[brig.Execution](t, false) },
			func() *brig.Outcome { return filled[brig.Outcome](t, false) },
		},
		"empty": {
			func() *brig.Record { return filled[brig.Record](t, true) },
			func() *brig.Execution { return filled[brig.Execution](t, true) },
			func() *brig.Outcome { return filled[brig.Outcome](t, true) },
		},
		"zero": {
			func() *brig.Record { return new(brig.Record) },
			func() *brig.Execution { return new(brig.Execution) },
			func() *brig.Outcome { return new(brig.Outcome) },
		},
	}
	for name, m := range makes {
		t.Run(name, func(t *testing.T) {
			var rev int64
			checkRoundTrip(t, func() *brig.Record {
				r := m.record()
				r.ID, r.Tenant, r.Spec.Name, r.Rev = brig.ID("id-"+name), "t", name, rev
				return r
			}, func(r *brig.Record) error {
				err := s.Put(ctx, r)
				rev = r.Rev
				return err
			}, func() (*brig.Record, error) { return s.Get(ctx, "t", name) })
			checkRoundTrip(t, func() *brig.Execution {
				x := m.exec()
				x.Sandbox, x.ExecID = sandbox, name
				return x
			}, func(x *brig.Execution) error { return s.PutExec(ctx, x) },
				func() (*brig.Execution, error) { return s.GetExec(ctx, sandbox, name) })
			checkRoundTrip(t, func() *brig.Outcome {
				o := m.outcome()
				o.Sandbox = name
				return o
			}, func(o *brig.Outcome) error { return s.PutRun(ctx, "t", o) },
				func() (*brig.Outcome, error) { return s.GetRun(ctx, "t", name) })
		})
	}
	checkLists(t, s, sandbox)

	// The parts of one result do not share memory with each other either. Appending to one part
	// must not overwrite the next part.
	x, err := s.GetExec(ctx, sandbox, "full")
	mustSucceed(t, err)
	tail := bytes.Clone(x.Stdout.Tail)
	_ = append(x.Stdout.Head, "#####"...)
	checkEqual(t, "Tail, after Head was appended to", x.Stdout.Tail, tail)
}

// checkRoundTrip writes the value that mk returns, overwrites the value in memory, reads it
// back, overwrites the result, and reads the value again.
func checkRoundTrip[T any](t *testing.T, mk func() *T, put func(*T) error, get func() (*T, error)) {
	t.Helper()
	in := mk()
	mustSucceed(t, put(in))
	want := mk() // after put, because Put sets a record's Rev
	checkEqual(t, "what was passed in", in, want)
	mutate(reflect.ValueOf(in))
	for _, when := range []string{"", " again, after a copy was changed"} {
		got, err := get()
		mustSucceed(t, err)
		checkEqual(t, fmt.Sprintf("%T%s", got, when), got, want)
		mutate(reflect.ValueOf(got))
	}
}

// checkLists verifies that the results of methods that return lists do not share memory with
// the store either.
func checkLists(t *testing.T, s brig.Store, sandbox brig.ID) {
	t.Helper()
	ctx := t.Context()
	read := func() ([]*brig.Record, []*brig.Record, []*brig.Execution) {
		page, _, err := s.List(ctx, "t", brig.ListOptions{})
		mustSucceed(t, err)
		all := map[brig.ID]*brig.Record{}
		mustSucceed(t, s.All(ctx, func(r *brig.Record) error { all[r.ID] = r; return nil }))
		var ordered []*brig.Record
		for _, r := range page {
			ordered = append(ordered, all[r.ID])
		}
		xs, err := s.ListExecs(ctx, sandbox)
		mustSucceed(t, err)
		return page, ordered, xs
	}
	page, all, xs := read()
	checkEqual(t, "All against List", all, page)
	for _, r := range page {
		got, err := s.Get(ctx, "t", string(r.ID))
		mustSucceed(t, err)
		checkEqual(t, "Get against List", got, r)
	}
	for _, x := range xs {
		got, err := s.GetExec(ctx, sandbox, x.ExecID)
		mustSucceed(t, err)
		checkEqual(t, "GetExec against ListExecs", got, x)
	}
	p, a, x := read()
	for _, v := range []any{p, a, x} {
		mutate(reflect.ValueOf(v))
	}
	p, a, x = read()
	checkEqual(t, "List after a copy was changed", p, page)
	checkEqual(t, "All after a copy was changed", a, all)
	checkEqual(t, "ListExecs after a copy was changed", x, xs)
}

// testBytes verifies that text that is not valid UTF-8, which Unix allows in arguments, paths
// and variables, is stored unchanged, and so are values that only look like JSON.
func testBytes(t *testing.T, s brig.Store) {
	ctx := t.Context()
	odd := []string{string(everyByte()), "\xff", "\x00", "\x00AAAA", "", "null", "[0,1]", "\ufffd", "\xed\xa0\x80"}
	r := record("t", "a")
	r.Spec.Env, r.Spec.Labels, r.Notes = map[string]string{}, map[string]string{}, odd
	for _, text := range odd {
		r.Spec.Env[text], r.Spec.Labels[text] = text, text
	}
	mustSucceed(t, s.Put(ctx, r))
	got, err := s.Get(ctx, "t", "a")
	mustSucceed(t, err)
	checkEqual(t, "record", got, r)
	for _, text := range odd {
		page, _, err := s.List(ctx, "t", brig.ListOptions{Labels: map[string]string{text: text}})
		mustSucceed(t, err)
		if len(page) != 1 {
			t.Errorf("by the label %q: %d records", text, len(page))
		}

		o := &brig.Outcome{Sandbox: "run", Value: json.RawMessage(text), Artifacts: []brig.File{{Path: text, Data: []byte(text)}}}
		o.Stdout = brig.Output{Head: []byte(text), Total: 1 << 62}
		mustSucceed(t, s.PutRun(ctx, "t", o))
		back, err := s.GetRun(ctx, "t", "run")
		mustSucceed(t, err)
		checkEqual(t, fmt.Sprintf("outcome of %q", text), back, o)

		e := event(text)
		e.Actor, e.Sandbox = text, brig.ID(text)
		mustSucceed(t, s.Append(ctx, e))
		events, err := s.Events(ctx, 1)
		mustSucceed(t, err)
		// The audit log is exported as text, and the exported log must still verify.
		e.Op, e.Actor = strings.ToValidUTF8(text, "\uFFFD"), strings.ToValidUTF8(text, "\uFFFD")
		e.Sandbox = brig.ID(e.Op)
		checkEqual(t, "event", events, []brig.Event{e})
	}
	for _, value := range []json.RawMessage{nil, json.RawMessage("null"), json.RawMessage(" {\"a\": [1e400, 1.0]}\n")} {
		o := &brig.Outcome{Sandbox: "run", Value: value}
		mustSucceed(t, s.PutRun(ctx, "t", o))
		back, err := s.GetRun(ctx, "t", "run")
		mustSucceed(t, err)
		checkEqual(t, fmt.Sprintf("value %q", value), back, o)
	}
}

// testTimes verifies that times are stored in UTC with nanosecond precision.
func testTimes(t *testing.T, s brig.Store) {
	ctx := t.Context()
	zone := time.FixedZone("odd", 5*3600+45*60)
	for i, at := range []time.Time{birth.Add(1), birth.In(zone), time.Now(), {}, time.Date(2400, 1, 1, 0, 0, 0, 1, zone)} {
		want := at.UTC().Round(0) // without the monotonic clock
		r := record("t", fmt.Sprint("n", i))
		r.Created, r.Expires, r.Ended, r.Exit = at, at, at, &brig.Exit{At: at}
		mustSucceed(t, s.Put(ctx, r, brig.Event{At: at}))
		got, err := s.Get(ctx, "t", r.Spec.Name)
		mustSucceed(t, err)
		x := execution(r.ID, "x", 0)
		x.Started = at
		mustSucceed(t, s.PutExec(ctx, x))
		gotX, err := s.GetExec(ctx, r.ID, "x")
		mustSucceed(t, err)
		mustSucceed(t, s.PutRun(ctx, "t", &brig.Outcome{Sandbox: "run", Result: x.Result}))
		gotRun, err := s.GetRun(ctx, "t", "run")
		mustSucceed(t, err)
		events, err := s.Events(ctx, 1)
		mustSucceed(t, err)
		checkEqual(t, "times", []time.Time{got.Created, got.Expires, got.Ended, got.Exit.At, gotX.Started, gotRun.Started, events[0].At},
			[]time.Time{want, want, want, want, want, want, want})
	}
	if got := listAll(t, s, "t", brig.ListOptions{Limit: 1}); len(got) != 5 {
		t.Errorf("in pages of one there are %d records", len(got))
	}
}
