package mcp

import (
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestOldestIdleSessionIsReplaced verifies the choice of the session that a new session replaces, if a tenant
// may have eight sessions and a holder four of them. A session is named after its holder, and
// the oldest session comes first. Upper case marks a busy session.
func TestOldestIdleSessionIsReplaced(t *testing.T) {
	ann := &brig.Person{Issuer: "https://login.example.com", Subject: "42"}
	actors := map[byte]brig.Actor{
		'a': {Key: "k1"}, 'b': {Key: "k2"}, 'c': {Key: "k3"}, 'd': {Key: "k4"}, 'e': {Key: "k5"},
		'g': {Key: "k1", Grant: "g1"}, // a grant of a's key
		'p': {Person: ann}, 'q': {Person: ann, Session: "s1"},
	}
	for _, c := range []struct {
		name, open string
		by         byte
		want       string // the position of the session that ends
		limited    bool
	}{
		{name: "the first", by: 'a'},
		{name: "the last of a share", open: "aaab", by: 'a'},
		{name: "beyond the share", open: "baaaa", by: 'a', want: "1"},
		{name: "with a grant beyond the key's share", open: "baaaa", by: 'g', want: "1"},
		{name: "with grants beyond the key's share", open: "bgggg", by: 'a', want: "1"},
		{name: "of a person beyond the share", open: "bpqqp", by: 'p', want: "1"},
		{name: "beyond the share, the oldest busy", open: "bAaaa", by: 'a', want: "2"},
		{name: "beyond the share, all busy", open: "bAAAA", by: 'a', limited: true},
		{name: "beyond the tenant's, by one without any", open: "bcaaaaee", by: 'd', want: "2"},
		{name: "beyond the tenant's, the largest busy", open: "bceeAAAA", by: 'd', want: "2"},
		{name: "beyond the tenant's, by one of the largest", open: "bcdeaaee", by: 'a', want: "3"},
		{name: "beyond the tenant's, by one with as many", open: "bbaaccdd", by: 'a', want: "2"},
		{name: "beyond the tenant's, its own all busy", open: "bbAAccdd", by: 'a', limited: true},
		{name: "another tenant", open: "aaaabbbb", by: 'x'},
	} {
		s, start := newSessions(8), time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		for i := range len(c.open) {
			caller, busy := c.open[i], c.open[i] < 'a'
			x := &session{tenant: "acme", holder: actors[caller|0x20].Holder(), used: start.Add(time.Duration(i) * time.Second), calls: map[*func(error)]bool{}}
			if busy {
				x.calls[new(func(error))] = true
			}
			s.all[strconv.Itoa(i)] = x
		}
		a := actors[c.by]
		a.Tenant = "acme"
		if c.by == 'x' {
			a = brig.Actor{Tenant: "rival", Key: "k1"}
		}
		id, err := s.findSessionToEnd(a)
		if id != c.want || (brig.KindOf(err) == brig.RateLimited) != c.limited || err != nil && !c.limited {
			t.Errorf("%s: session %q ends, %v; want %q", c.name, id, err, c.want)
		}
	}
}
