package brig_test

import (
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestDerivedRights checks that a credential derived from a key has no right that
// the key lacks, regardless of its claims, and no right after its expiry.
func TestDerivedRights(t *testing.T) {
	end := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	key := brig.Actor{Name: "ann", Tenant: "acme", Key: "k1", Role: brig.Member, Scopes: []string{"sandbox.", "file."}, Expires: end}
	rights := brig.DerivedRights{Grant: "g1", Role: brig.Admin, Scopes: []string{"file.read"}, Sandboxes: []string{"one"}, Expires: end.Add(-time.Hour)}
	a, err := key.Derive(rights)
	if err != nil || a.Role != brig.Member || !slices.Equal(a.Scopes, rights.Scopes) || !slices.Equal(a.Sandboxes, rights.Sandboxes) ||
		!a.Expires.Equal(rights.Expires) || a.Grant != "g1" || a.Key != "k1" || a.Tenant != "acme" {
		t.Errorf("%+v, %v", a, err)
	}
	if again, err := key.Derive(a.DerivedRights()); err != nil || again.Role != a.Role || !again.Expires.Equal(a.Expires) {
		t.Errorf("by what it says of itself: %+v, %v", again, err)
	}
	for what, change := range map[string]func(*brig.DerivedRights){
		"all scopes": func(t *brig.DerivedRights) { t.Scopes = nil }, "another scope": func(t *brig.DerivedRights) { t.Scopes = []string{"run"} },
		"no end": func(t *brig.DerivedRights) { t.Expires = time.Time{} }, "a later end": func(t *brig.DerivedRights) { t.Expires = end.Add(time.Second) },
	} {
		wider := rights
		change(&wider)
		if a, err := key.Derive(wider); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("%s: %+v, %v", what, a, err)
		}
	}
	for _, at := range []time.Time{rights.Expires, end} {
		if err := rights.CheckExpiry(brig.WallClock(func() time.Time { return at })); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("at %v: %v", at, err)
		}
	}
	if err := rights.CheckExpiry(brig.WallClock(func() time.Time { return rights.Expires.Add(-1) })); err != nil {
		t.Error(err)
	}
}
