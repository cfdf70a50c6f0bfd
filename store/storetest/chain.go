package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// lines reads all lines of a tenant that match q, page by page.
func lines(t *testing.T, s brig.Store, tenant string, q brig.AuditQuery) []brig.AuditLine {
	t.Helper()
	var out []brig.AuditLine
	for {
		page, err := s.Audit(t.Context(), tenant, q)
		mustSucceed(t, err)
		if len(page) == 0 {
			return out
		}
		out, q.After = append(out, page...), page[len(page)-1].Seq
	}
}

// checkChain checks that lines form a chain, and that the last line is the
// head.
func checkChain(t *testing.T, s brig.Store, tenant string, all []brig.AuditLine) {
	t.Helper()
	for i, l := range all {
		if l.Tenant != tenant || l.Hash == [32]byte{} {
			t.Errorf("line %d of %q: %+v", i, tenant, l)
		}
		if i > 0 && (l.Seq != all[i-1].Seq+1 || l.Prev != all[i-1].Hash) {
			t.Errorf("line %d does not follow line %d", l.Seq, all[i-1].Seq)
		}
	}
	heads, err := s.AuditHeads(t.Context())
	mustSucceed(t, err)
	for _, h := range heads {
		if last := all[len(all)-1]; h.Tenant == tenant && (h.Seq != last.Seq || h.Hash != last.Hash || !h.At.Equal(last.At)) {
			t.Errorf("the head is %+v and the last line %+v", h, last)
		}
	}
}

func testChain(t *testing.T, s brig.Store) {
	ctx := t.Context()
	heads, err := s.AuditHeads(ctx)
	mustSucceed(t, err)
	if len(heads) != 0 || len(lines(t, s, "t", brig.AuditQuery{})) != 0 {
		t.Errorf("a new store has heads %+v", heads)
	}
	a, b, c := event("a"), event("b"), event("c")
	a.Detail = map[string]string{brig.DetailLabel + "k": "v", brig.DetailName: "box", "ünï": "<\u2028>"}
	b.Tenant, b.Detail = "u", map[string]string{"broken": "\xff\x00"}
	c.At, c.Sandbox = birth.Add(time.Hour), "other"
	mustSucceed(t, s.Append(ctx, a, b, c))
	mustSucceed(t, s.Put(ctx, record("t", "one"), event("d"), event("e")))
	own := lines(t, s, "t", brig.AuditQuery{Limit: 3})
	if len(own) != 4 || own[0].Seq != 1 || own[0].Prev != [32]byte{} {
		t.Fatalf("lines %+v", own)
	}
	checkChain(t, s, "t", own)
	checkEqual(t, "the first line's event", own[0].Event, a)
	other := lines(t, s, "u", brig.AuditQuery{})
	if len(other) != 1 || other[0].Seq != 1 || other[0].Detail["broken"] != "\uFFFD\x00" {
		t.Errorf("lines of another tenant: %+v", other)
	}
	for name, q := range map[string]struct {
		brig.AuditQuery
		want string
	}{
		"after":        {brig.AuditQuery{After: 2}, "de"},
		"since":        {brig.AuditQuery{Since: birth.Add(time.Minute)}, "c"},
		"until":        {brig.AuditQuery{Until: birth.Add(time.Minute)}, "ade"},
		"empty":        {brig.AuditQuery{Since: birth, Until: birth}, ""},
		"sandbox":      {brig.AuditQuery{Sandbox: "other"}, "c"},
		"sandbox name": {brig.AuditQuery{Sandbox: "box"}, "a"},
		"label":        {brig.AuditQuery{Labels: map[string]string{"k": "v"}}, "a"},
		"other label":  {brig.AuditQuery{Labels: map[string]string{"k": "w"}}, ""},
	} {
		got := ""
		for _, l := range lines(t, s, "t", q.AuditQuery) {
			got += l.Op
		}
		if got != q.want {
			t.Errorf("%s: %q, want %q", name, got, q.want)
		}
	}
	_, err = s.Audit(ctx, "t", brig.AuditQuery{Limit: 1001})
	kind(t, err, brig.InvalidArgument)
}

// testChainRace checks that concurrent writers form one chain, regardless of
// their durability.
func testChainRace(t *testing.T, s brig.Store) {
	const writers, each = 8, 20
	var work sync.WaitGroup
	for i := range writers {
		to := s
		if i%2 == 0 {
			to = s.Soon()
		}
		work.Go(func() {
			for j := range each {
				if err := to.Append(t.Context(), event(fmt.Sprint(i, " ", j)), event("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	all := lines(t, s, "t", brig.AuditQuery{})
	if len(all) != 2*writers*each {
		t.Errorf("%d lines", len(all))
	}
	checkChain(t, s, "t", all)
}

func testPruneAudit(t *testing.T, s brig.Store) {
	ctx := t.Context()
	at := func(op string, h int) brig.Event {
		e := event(op)
		e.At = birth.Add(time.Duration(h) * time.Hour)
		return e
	}
	mustSucceed(t, s.Append(ctx, at("a", 0), at("b", 1), at("c", 3), at("d", 2)))
	before := lines(t, s, "t", brig.AuditQuery{})
	mustSucceed(t, s.PruneAudit(ctx, birth, 0))
	if got := lines(t, s, "t", brig.AuditQuery{}); len(got) != 4 {
		t.Fatalf("nothing was old, and there are %d lines", len(got))
	}
	mustSucceed(t, s.PruneAudit(ctx, birth.Add(150*time.Minute), 0)) // d is older than the limit, but comes after c
	got := lines(t, s, "t", brig.AuditQuery{})
	if len(got) != 3 || got[0].Op != "c" || got[0].Seq != 3 || got[0].Prev != before[1].Hash {
		t.Fatalf("lines %+v", got)
	}
	checkChain(t, s, "t", got)
	p := got[2]
	if p.Op != brig.PrunedOp || p.Detail[brig.DetailPruned] != "2" || p.Detail[brig.DetailPrunedHash] != fmt.Sprintf("%x", before[1].Hash) {
		t.Errorf("nothing says what was removed: %+v", p)
	}
	mustSucceed(t, s.Append(ctx, event("e")))
	checkChain(t, s, "t", lines(t, s, "t", brig.AuditQuery{}))
	mustSucceed(t, s.PruneAudit(ctx, time.Now().Add(time.Hour), 0)) // the whole chain
	mustSucceed(t, s.Append(ctx, event("f")))
	got = lines(t, s, "t", brig.AuditQuery{})
	if len(got) != 2 || got[0].Op != brig.PrunedOp || got[0].Seq != 7 || got[0].Detail[brig.DetailPruned] != "6" {
		t.Errorf("lines %+v", got)
	}
	checkChain(t, s, "t", got)
	// Limit the number of lines, for each tenant separately.
	mustSucceed(t, s.Append(ctx, brig.Event{At: time.Now(), Op: "other", Tenant: "u", Phase: brig.Observed}))
	for range 20 {
		mustSucceed(t, s.Append(ctx, event("g")))
	}
	mustSucceed(t, s.PruneAudit(ctx, birth, 30))
	if got = lines(t, s, "t", brig.AuditQuery{}); len(got) != 22 {
		t.Errorf("there are %d lines within the bound", len(got))
	}
	mustSucceed(t, s.PruneAudit(ctx, birth, 20))
	got = lines(t, s, "t", brig.AuditQuery{})
	if len(got) != 18+1 || got[18].Op != brig.PrunedOp { // nine tenths of the lines, and the line about the pruning
		t.Errorf("there are %d lines, the last is %+v", len(got), got[len(got)-1])
	}
	checkChain(t, s, "t", got)
	if other := lines(t, s, "u", brig.AuditQuery{}); len(other) != 1 {
		t.Errorf("another tenant has %d lines", len(other))
	}
}
