package storetest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// putCreatedAt inserts a record that was created at the given time after birth.
func putCreatedAt(t *testing.T, s brig.Store, name string, after time.Duration) *brig.Record {
	t.Helper()
	r := record("t", name)
	r.Created = birth.Add(after)
	mustSucceed(t, s.Put(t.Context(), r))
	return r
}

func testOrder(t *testing.T, s brig.Store) {
	// The records are written in a different order than their creation times, and two of them
	// have the same time.
	for i, after := range []time.Duration{5, 1, 9, 5, 0, 1_000_000_000} {
		putCreatedAt(t, s, fmt.Sprint("n", i), after)
	}
	want := []string{"n5", "n2", "n3", "n0", "n1", "n4"}
	for limit := 1; limit <= len(want)+1; limit++ {
		got := listAll(t, s, "t", brig.ListOptions{Limit: limit})
		checkEqual(t, fmt.Sprintf("in pages of %d", limit), names(got), want)
	}
}

func testPaging(t *testing.T, s brig.Store) {
	ctx := t.Context()
	var want []string
	for i := range 6 {
		putCreatedAt(t, s, fmt.Sprint("n", i), time.Duration(i))
		want = slices.Insert(want, 0, fmt.Sprint("n", i))
	}
	var got []string
	o := brig.ListOptions{Limit: 2}
	for i := 0; ; i++ {
		page, next, err := s.List(ctx, "t", o)
		mustSucceed(t, err)
		got = append(got, names(page)...)
		// A record that is created between two pages is newer and does not shift them, even if
		// the record at the cursor is deleted.
		putCreatedAt(t, s, fmt.Sprint("new", i), time.Hour+time.Duration(i))
		mustSucceed(t, s.Delete(ctx, page[len(page)-1].ID))
		if next == "" {
			break
		}
		o.Cursor = next
	}
	checkEqual(t, "over all pages", got, want)

	// After a full last page, there is no next page.
	_, next, err := s.List(ctx, "t", brig.ListOptions{Limit: 6})
	mustSucceed(t, err)
	if next != "" {
		t.Error("the last page, which is full, has a next one")
	}
}

func testLimits(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for i := range 101 {
		putCreatedAt(t, s, fmt.Sprint("n", i), time.Duration(i))
	}
	for limit, want := range map[int]int{0: 100, 1: 1, 100: 100, 101: 101, 1000: 101} {
		page, next, err := s.List(ctx, "t", brig.ListOptions{Limit: limit})
		mustSucceed(t, err)
		if len(page) != want || (next == "") != (want == 101) {
			t.Errorf("limit %d: %d records, next %q; want %d", limit, len(page), next, want)
		}
	}
	for _, limit := range []int{-1, 1001} {
		_, _, err := s.List(ctx, "t", brig.ListOptions{Limit: limit})
		if e := kind(t, err, brig.InvalidArgument); e.Field != "limit" {
			t.Errorf("limit %d: the field is %q", limit, e.Field)
		}
	}
}

// testLargeRecords verifies that the size of a page of records with large environments is
// bounded, and that the pages together contain every record exactly once.
func testLargeRecords(t *testing.T, s brig.Store) {
	ctx := t.Context()
	const count, each, maxTotal = 20, 1 << 20, 10 << 20
	var want []string
	for i := range count {
		r := record("t", fmt.Sprint("n", i))
		r.Created = birth.Add(time.Duration(i))
		r.Spec.Env = map[string]string{"LARGE": strings.Repeat("x", each)}
		mustSucceed(t, s.Put(ctx, r))
		want = slices.Insert(want, 0, r.Spec.Name)
	}
	page, next, err := s.List(ctx, "t", brig.ListOptions{Limit: 1000})
	mustSucceed(t, err)
	if size := len(page) * each; len(page) == 0 || size > maxTotal || next == "" {
		t.Errorf("a page has %d records of %d bytes, next %q", len(page), each, next)
	}
	checkEqual(t, "all pages", names(listAll(t, s, "t", brig.ListOptions{Limit: 1000})), want)
}

func testFilters(t *testing.T, s brig.Store) {
	ctx := t.Context()
	type labels = map[string]string
	const odd = "it's \"100%\" _odd_; --"
	for i, r := range []struct {
		labels labels
		state  brig.State
	}{
		{nil, brig.Running},
		{labels{"app": "web"}, brig.Running},
		{labels{"app": "web", "env": "prod"}, brig.Running},
		{labels{"app": "web", "env": "prod", odd: odd}, brig.Ended},
		{labels{"app": "db", "env": "prod", "none": ""}, brig.Creating},
	} {
		rec := record("t", fmt.Sprint("n", i))
		rec.Spec.Labels, rec.State, rec.Created = r.labels, r.state, birth.Add(-time.Duration(i))
		mustSucceed(t, s.Put(ctx, rec))
	}
	other := record("u", "other")
	other.Spec.Labels = labels{"app": "web"}
	mustSucceed(t, s.Put(ctx, other))

	for _, c := range []struct {
		labels labels
		states []brig.State
		want   []string
	}{
		{nil, nil, []string{"n0", "n1", "n2", "n3", "n4"}},
		{labels{}, []brig.State{}, []string{"n0", "n1", "n2", "n3", "n4"}},
		{labels{"app": "web"}, nil, []string{"n1", "n2", "n3"}},
		{labels{"app": "web", "env": "prod"}, nil, []string{"n2", "n3"}},
		{labels{"app": "prod"}, nil, nil},
		{labels{"env": "web"}, nil, nil},
		{labels{"app": ""}, nil, nil},
		{labels{"none": ""}, nil, []string{"n4"}},
		{labels{"absent": ""}, nil, nil},
		{labels{"APP": "web"}, nil, nil},
		{labels{"app": "w%"}, nil, nil},
		{labels{odd: odd}, nil, []string{"n3"}},
		{nil, []brig.State{brig.Running}, []string{"n0", "n1", "n2"}},
		{nil, []brig.State{brig.Ended, brig.Creating, brig.Ended}, []string{"n3", "n4"}},
		{labels{"env": "prod"}, []brig.State{brig.Running, brig.Creating}, []string{"n2", "n4"}},
		{nil, []brig.State{"no such"}, nil},
	} {
		what := fmt.Sprint(c.labels, c.states)
		for _, limit := range []int{0, 1} {
			o := brig.ListOptions{Labels: c.labels, States: c.states, Limit: limit}
			checkEqual(t, what, names(listAll(t, s, "t", o)), c.want)
		}
	}

	// Filters use the current state of a record.
	r, err := s.Get(ctx, "t", "n1")
	mustSucceed(t, err)
	r.Spec.Labels, r.State = labels{"app": "db"}, brig.Stopping
	mustSucceed(t, s.Put(ctx, r))
	checkEqual(t, "old label", names(listAll(t, s, "t", brig.ListOptions{Labels: labels{"app": "web"}})), []string{"n2", "n3"})
	checkEqual(t, "new label", names(listAll(t, s, "t", brig.ListOptions{Labels: labels{"app": "db"}})), []string{"n1", "n4"})
	checkEqual(t, "new state", names(listAll(t, s, "t", brig.ListOptions{States: []brig.State{brig.Stopping}})), []string{"n1"})
	mustSucceed(t, s.Delete(ctx, r.ID))
	checkEqual(t, "deleted", names(listAll(t, s, "t", brig.ListOptions{Labels: labels{"app": "db"}})), []string{"n4"})
}

func testCursors(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for i := range 3 {
		putCreatedAt(t, s, fmt.Sprint("n", i), time.Duration(i))
	}
	put(t, s, "u", "theirs")
	_, next, err := s.List(ctx, "t", brig.ListOptions{Limit: 1})
	mustSucceed(t, err)
	flipped := []byte(next)
	flipped[len(flipped)/2] ^= 1
	for _, c := range []string{
		"x", "0", " ", "n1", "!!!", next[1:], next[:len(next)-1], next + "A", next + "=", " " + next,
		string(flipped), base64.RawURLEncoding.EncodeToString([]byte("not a cursor of this store")), "\x00\xff",
	} {
		_, _, err := s.List(ctx, "t", brig.ListOptions{Cursor: c})
		if e := kind(t, err, brig.InvalidArgument); e.Field != "cursor" {
			t.Errorf("cursor %q: the field is %q", c, e.Field)
		}
	}
	// A cursor of another tenant must not reveal that tenant's records.
	page, _, err := s.List(ctx, "u", brig.ListOptions{Cursor: next})
	if err == nil && slices.ContainsFunc(page, func(r *brig.Record) bool { return r.Tenant != "u" }) {
		t.Errorf("tenant u sees %v", names(page))
	}
}
