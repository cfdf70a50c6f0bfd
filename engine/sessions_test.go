package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// identityProvider is a fake identity provider.
type identityProvider struct {
	people map[string]*brig.Person
	roles  map[string]brig.Actor // by subject
}

func (f *identityProvider) Person(_ context.Context, token string) (*brig.Person, time.Time, error) {
	p, ok := f.people[token]
	if !ok {
		return nil, time.Time{}, brig.Errorf(brig.Unauthenticated, "no such token")
	}
	return p, time.Now().Add(time.Hour), nil
}

func (f *identityProvider) TokenRule() brig.TokenRule { return brig.TokenRule{} }

func (f *identityProvider) Actor(p *brig.Person) (brig.Actor, error) {
	a, ok := f.roles[p.Subject]
	if !ok {
		return a, brig.Errorf(brig.Unauthenticated, "no role")
	}
	return a, nil
}

func newIdentityProvider() *identityProvider {
	ann := &brig.Person{Issuer: "https://login.example.com", Subject: "42", Email: "ann@example.com"}
	return &identityProvider{map[string]*brig.Person{"token": ann}, map[string]brig.Actor{"42": {Tenant: "acme", Role: brig.Member}}}
}

func newUserFixture(t *testing.T, f *identityProvider) *fixture {
	return newFixture(t, func(o *engine.Options) { o.Users = f })
}

// startSession creates a session, and returns a function that authenticates
// with it.
func (h *fixture) startSession(t *testing.T, ctx context.Context) (*brig.NewSession, func() (brig.Actor, error)) {
	t.Helper()
	s, err := h.CreateSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Hash != [32]byte{} || s.Secret == "" {
		t.Errorf("it is told as %+v", s)
	}
	return s, func() (brig.Actor, error) { return h.SessionActor(t.Context(), sha256.Sum256([]byte(s.Secret))) }
}

// A session ends when it has been idle for too long or is too old, when its key is
// revoked, or when its person no longer has a role. This also applies after a
// restart.
func TestSessionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newIdentityProvider()
		h := newUserFixture(t, f)
		admin := withRole(t, brig.Admin)
		ended := func(what string, ask func() (brig.Actor, error)) {
			t.Helper()
			if a, err := ask(); brig.KindOf(err) != brig.Unauthenticated {
				t.Errorf("%s: %+v, %v", what, a, err)
			}
		}
		goesOn := func(what string, ask func() (brig.Actor, error)) brig.Actor {
			t.Helper()
			a, err := ask()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			return a
		}
		key, k := h.newKeyHolder(t, admin, brig.KeySpec{Name: "console", Role: brig.Member})
		person, err := h.PersonActor(t.Context(), "token")
		if err != nil || person.Name != "ann@example.com" || person.Expires.IsZero() {
			t.Fatal(person, err)
		}
		person.Expires = time.Time{} // as after a login
		signedIn := brig.WithActor(t.Context(), person)

		idle, askIdle := h.startSession(t, key)
		used, askUsed := h.startSession(t, key)
		_, askPerson := h.startSession(t, signedIn)
		if a := goesOn("at first", askIdle); a.Key != k.ID || a.Session != idle.ID || a.Role != brig.Member || a.Name != "console" {
			t.Errorf("a key's session is %+v", a)
		}
		if a := goesOn("a person's", askPerson); a.Person == nil || a.Person.Subject != "42" || a.Key != "" {
			t.Errorf("a person's session is %+v", a)
		}
		for range 3 {
			time.Sleep(7 * time.Hour)
			goesOn("used each seven hours", askUsed)
			goesOn("a person's, too", askPerson)
		}
		ended("not used for 21 hours", askIdle)
		h.Close() // stores the time of the session's last use
		h.Engine = engine.New(t.Context(), h.Options)
		goesOn("after a restart", askUsed)
		time.Sleep(3*time.Hour + time.Second)
		ended("24 hours old", askUsed)

		_, askKey := h.startSession(t, key)
		_, askPerson = h.startSession(t, signedIn)
		f.roles["42"] = brig.Actor{Tenant: "acme", Role: brig.Viewer}
		if a := goesOn("with another role", askPerson); a.Role != brig.Viewer {
			t.Errorf("a person with another role is %+v", a)
		}
		f.roles["42"] = brig.Actor{Tenant: "rival", Role: brig.Viewer}
		ended("in another tenant", askPerson)
		f.roles["42"] = brig.Actor{Tenant: "none", Role: brig.Viewer}
		ended("in an unknown tenant", askPerson)
		delete(f.roles, "42")
		ended("without a role", askPerson)
		if err := h.RevokeKey(admin, k.ID); err != nil {
			t.Fatal(err)
		}
		ended("of a key that was revoked", askKey)
		if list, err := h.store.Sessions(t.Context(), "acme"); err != nil || slices.ContainsFunc(list, func(s *brig.Session) bool { return s.Actor.Key == k.ID && s.ID != used.ID }) {
			t.Errorf("sessions of the key are left: %+v, %v", list, err)
		}
		h.Close()
	})
}

// Holders of keys and persons can create sessions; grants and other sessions
// cannot. A caller that may not see a session receives NotFound.
func TestOnlyKeysAndPersonsCreateSessions(t *testing.T) {
	h := newFixture(t, func(o *engine.Options) {
		o.Users, o.GrantSeed = newIdentityProvider(), []byte("a seed of this test's own")
	})
	admin := withRole(t, brig.Admin)
	member, k := h.newKeyHolder(t, admin, brig.KeySpec{Name: "m", Role: brig.Member, TTL: time.Hour})
	other, _ := h.newKeyHolder(t, admin, brig.KeySpec{Name: "o", Role: brig.Member})
	boss, _ := h.newKeyHolder(t, admin, brig.KeySpec{Name: "b", Role: brig.Admin})
	op := brig.WithActor(t.Context(), brig.Actor{Name: "op", Tenant: "rival", Role: brig.Operator})
	s, ask := h.startSession(t, member)
	if !s.Expires.Equal(k.Actor.Expires) {
		t.Errorf("a session of a key that ends at %v ends at %v", k.Actor.Expires, s.Expires)
	}
	a, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	inSession := brig.WithActor(t.Context(), a)
	g, err := h.CreateGrant(member, brig.GrantSpec{})
	if err != nil {
		t.Fatal(err)
	}
	granted, err := h.withCredential(t, g.Secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		kind brig.Kind
	}{
		"a grant": {granted, brig.PermissionDenied}, "a session": {inSession, brig.PermissionDenied}, "nobody in particular": {admin, brig.FailedPrecondition},
		"nobody at all": {t.Context(), brig.Unauthenticated},
	} {
		if _, err := h.CreateSession(c.ctx); brig.KindOf(err) != c.kind {
			t.Errorf("with %s: %v", name, err)
		}
	}
	_, askOther := h.startSession(t, other)
	bosss, _ := h.startSession(t, boss)
	for name, c := range map[string]struct {
		ctx  context.Context
		want int
	}{"its owner": {member, 1}, "itself": {inSession, 1}, "a grant": {granted, 0}, "an admin": {boss, 3}, "an operator": {op, 0}} {
		if list, err := h.Sessions(c.ctx, ""); err != nil || len(list) != c.want || c.want > 0 && list[0].Hash != [32]byte{} {
			t.Errorf("to %s: %+v, %v", name, list, err)
		}
	}
	if list, err := h.Sessions(op, brig.AllTenants); err != nil || len(list) != 3 {
		t.Errorf("all, to an operator: %+v, %v", list, err)
	}
	if _, err := h.Sessions(boss, brig.AllTenants); brig.KindOf(err) != brig.NotFound {
		t.Errorf("all, to an admin: %v", err)
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "r", Tenant: "rival", Role: brig.Admin})
	for name, ctx := range map[string]context.Context{"another key": other, "another tenant's admin": rival, "a grant": granted} {
		if err := h.EndSession(ctx, s.ID); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s ends it: %v", name, err)
		}
	}
	if err := h.EndSession(member, bosss.ID); brig.KindOf(err) != brig.NotFound {
		t.Errorf("a member ends an admin's: %v", err)
	}
	if err := h.EndSession(member, ""); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("who is in no session leaves it: %v", err)
	}
	if err := errors.Join(h.EndSession(inSession, ""), h.EndSession(op, bosss.ID)); err != nil {
		t.Error(err)
	}
	if _, err := ask(); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("after it was left: %v", err)
	}
	if _, err := askOther(); err != nil {
		t.Errorf("the other: %v", err)
	}
}

// The audit log records a person's calls with the names of the person and of
// the identity provider.
func TestAuditNamesUsers(t *testing.T) {
	h := newUserFixture(t, newIdentityProvider())
	a, err := h.PersonActor(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	ctx := brig.WithActor(t.Context(), a)
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Tenants(ctx); brig.KindOf(err) != brig.PermissionDenied {
		t.Fatal(err)
	}
	events, err := h.store.Events(t.Context(), 10)
	if err != nil || len(events) != 3 {
		t.Fatal(events, err)
	}
	for _, e := range events {
		if e.Actor != "ann@example.com" || e.Detail[brig.DetailSubject] != "https://login.example.com#42" {
			t.Errorf("%+v", e)
		}
	}
	if _, err := h.PersonActor(t.Context(), "other"); brig.KindOf(err) != brig.Unauthenticated {
		t.Error(err)
	}
	// A key expires no later than the token with which it was created.
	f := newIdentityProvider()
	f.roles["42"] = brig.Actor{Tenant: "acme", Role: brig.Admin}
	h = newUserFixture(t, f)
	if a, err = h.PersonActor(t.Context(), "token"); err != nil {
		t.Fatal(err)
	}
	k, err := h.CreateKey(brig.WithActor(t.Context(), a), brig.KeySpec{Name: "x", Role: brig.Viewer})
	if err != nil || !k.Actor.Expires.Equal(a.Expires) || k.Actor.Person != nil {
		t.Errorf("%+v, %v; the token ends at %v", k, err, a.Expires)
	}
}

// A key that was created in a session of a token expires with the token at the
// latest. A key that was created in a session of a login does not expire.
func TestKeysNeverOutlastTokenSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newIdentityProvider()
		f.roles["42"] = brig.Actor{Tenant: "acme", Role: brig.Admin}
		h := newUserFixture(t, f)
		byToken, err := h.PersonActor(t.Context(), "token")
		if err != nil || byToken.Expires.IsZero() {
			t.Fatal(byToken, err)
		}
		byLogin := byToken
		byLogin.Expires = time.Time{}
		for name, c := range map[string]struct {
			actor brig.Actor
			stays bool
		}{"a token": {byToken, false}, "a login": {byLogin, true}} {
			_, ask := h.startSession(t, brig.WithActor(t.Context(), c.actor))
			a, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			k, err := h.CreateKey(brig.WithActor(t.Context(), a), brig.KeySpec{Name: "mine", Role: brig.Member})
			if err != nil {
				t.Fatal(err)
			}
			if end := k.Actor.Expires; end.IsZero() != c.stays || !c.stays && end.After(byToken.Expires) {
				t.Errorf("the key of a session that was begun with %s ends at %v, and that at %v", name, end, byToken.Expires)
			}
		}
	})
}
