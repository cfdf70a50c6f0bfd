package workspace

import (
	"fmt"
	"testing"
)

// TestReleaseFreesOnlyUnsharedContents checks that a capture reserves every content that no
// version references, and that a release frees exactly the contents that no
// other capture holds.
func TestReleaseFreesOnlyUnsharedContents(t *testing.T) {
	s := New(nil, nil)
	l := s.ledger("acme")
	l.named = map[string]int64{}
	contents, fresh := map[string]int64{}, map[string]int64{}
	for i := range 20 { // in the random order of a map
		digest := fmt.Sprint("d", i)
		contents[digest] = 10
		if i%2 == 0 {
			l.add(digest, 10)
		} else {
			fresh[digest] = 10
		}
	}
	one := &Capture{s: s, tenant: "acme", quota: 1000, holds: map[string]bool{}}
	other := &Capture{s: s, tenant: "acme", quota: 1000, holds: map[string]bool{}}
	for _, c := range []*Capture{one, one, other} { // a repeated reservation costs nothing
		if err := c.reserve(t.Context(), contents); err != nil {
			t.Fatal(err)
		}
		if len(c.holds) != len(fresh) || l.reservedBytes != 100 || l.total != 100 {
			t.Fatalf("%d held, %d bytes ahead of %d; want %d, 100 and 100", len(c.holds), l.reservedBytes, l.total, len(fresh))
		}
	}
	third := &Capture{s: s, tenant: "acme", quota: 1000, holds: map[string]bool{}}
	if err := third.reserve(t.Context(), map[string]int64{"more": 5}); err != nil {
		t.Fatal(err)
	}
	one.s.ledger("acme").release(one.holds, nil)
	if len(l.reserved) != len(fresh)+1 || l.reservedBytes != 105 {
		t.Errorf("while another holds it: %d reserved, %d bytes ahead", len(l.reserved), l.reservedBytes)
	}
	l.release(other.holds, nil)
	if len(l.reserved) != 1 || l.reservedBytes != 5 {
		t.Errorf("when no connection holds it: %d reserved, %d bytes ahead", len(l.reserved), l.reservedBytes)
	}
	// A content that another capture holds does not prevent the release of the
	// others.
	if err := one.reserve(t.Context(), map[string]int64{"more": 5, "d1": 10, "d3": 10, "d5": 10}); err != nil {
		t.Fatal(err)
	}
	l.release(one.holds, nil)
	if len(l.reserved) != 1 || l.reservedBytes != 5 {
		t.Errorf("beside what is held: %d reserved, %d bytes ahead", len(l.reserved), l.reservedBytes)
	}
	l.release(third.holds, nil)
	if len(l.reserved) != 0 || l.reservedBytes != 0 {
		t.Errorf("at the end: %d reserved, %d bytes ahead", len(l.reserved), l.reservedBytes)
	}
}
