package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// newSession returns a session with every field set.
func newSession(t *testing.T, tenant string, i byte) brig.Session {
	s := brig.Session{Actor: *filled[brig.Actor](t, false)}
	s.ID, s.Hash, s.CSRF = fmt.Sprintf("s%s%d", tenant, i), hash(i), hash(i+100)
	s.Actor.Tenant, s.Actor.Key = tenant, fmt.Sprintf("k%s%d", tenant, i)
	s.Actor.Expires = birth.Add(time.Hour)
	s.Created, s.Used, s.Expires = birth.Add(time.Duration(i)), birth.Add(time.Hour), birth.Add(2*time.Hour)
	return s
}

func testSessions(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.FindSession(ctx, hash(1))
	e := kind(t, err, brig.Unauthenticated)
	all := []brig.Session{newSession(t, "t", 1), newSession(t, "t", 2), newSession(t, "u", 3)}
	for _, i := range []int{1, 2, 0} {
		mustSucceed(t, s.PutSession(ctx, all[i]))
	}
	for _, want := range all {
		got, err := s.FindSession(ctx, want.Hash)
		mustSucceed(t, err)
		checkEqual(t, "session "+want.ID, got, &want)
	}
	ids := func(tenant string) (out []string) {
		list, err := s.Sessions(ctx, tenant)
		mustSucceed(t, err)
		for _, x := range list {
			out = append(out, x.ID)
		}
		return out
	}
	checkEqual(t, "a tenant's", ids("t"), []string{"st1", "st2"})
	checkEqual(t, "all", ids(brig.AllTenants), []string{"st1", "st2", "su3"})
	checkEqual(t, "nobody's", ids("nobody"), []string(nil))
	later := birth.Add(3 * time.Hour)
	mustSucceed(t, s.TouchSessions(ctx, map[string]time.Time{"st1": later, "none": later}))
	got, err := s.FindSession(ctx, hash(1))
	mustSucceed(t, err)
	all[0].Used = later
	checkEqual(t, "one that was used", got, &all[0])
	got.Actor.Person.Claims["scribbled"] = nil
	got, err = s.FindSession(ctx, hash(1))
	mustSucceed(t, err)
	checkEqual(t, "after its copy was changed", got, &all[0])
	mustSucceed(t, s.DeleteSession(ctx, "u", "st2")) // belongs to another tenant
	checkEqual(t, "after another tenant's was to be deleted", ids("t"), []string{"st1", "st2"})
	mustSucceed(t, s.DeleteSession(ctx, "t", "st2"))
	mustSucceed(t, s.DeleteSession(ctx, "t", "st2")) // no error if it does not exist
	checkEqual(t, "after one was deleted", ids("t"), []string{"st1"})
	_, err = s.FindSession(ctx, hash(2))
	checkEqual(t, "an unknown session's error", kind(t, err, brig.Unauthenticated), e)
}

// testSessionEnds verifies which operations delete sessions.
func testSessionEnds(t *testing.T, s brig.Store) {
	ctx := t.Context()
	there := func(i byte) bool {
		_, err := s.FindSession(ctx, hash(i))
		return err == nil
	}
	for i, tenant := range []string{"t", "t", "u", "v"} {
		mustSucceed(t, s.PutSession(ctx, newSession(t, tenant, byte(i))))
	}
	person := newSession(t, "u", 5)
	person.Actor.Key = "" // the actors of persons have no key
	mustSucceed(t, s.PutSession(ctx, person))
	mustSucceed(t, s.DeleteKey(ctx, "kt0"))
	checkEqual(t, "after a key was deleted", []bool{there(0), there(1), there(5)}, []bool{false, true, true})
	mustSucceed(t, s.DeleteTenant(ctx, "t"))
	checkEqual(t, "after a tenant was deleted", []bool{there(1), there(2)}, []bool{false, true})
	mustSucceed(t, s.TouchSessions(ctx, map[string]time.Time{"su2": birth}))
	mustSucceed(t, s.PruneSessions(ctx, birth.Add(2*time.Hour), birth))
	checkEqual(t, "before any has ended", []bool{there(2), there(3), there(5)}, []bool{true, true, true})
	mustSucceed(t, s.PruneSessions(ctx, birth.Add(time.Hour), birth.Add(time.Minute)))
	checkEqual(t, "after one was not used", []bool{there(2), there(3)}, []bool{false, true})
	mustSucceed(t, s.PruneSessions(ctx, birth.Add(2*time.Hour+1), birth))
	checkEqual(t, "after all have ended", []bool{there(3), there(5)}, []bool{false, false})
}
