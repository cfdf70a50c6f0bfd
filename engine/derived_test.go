package engine_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// All kinds of calls reject an actor whose grant has expired after its
// authentication. The key from which the grant was derived remains valid.
func TestGateRejectsExpiredActors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSeedFixture(t)
		full, _ := h.newKeyHolder(t, withRole(t, brig.Admin), brig.KeySpec{Name: "m", Role: brig.Member})
		if _, err := h.Create(full, brig.Spec{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		g, err := h.CreateGrant(full, brig.GrantSpec{TTL: 15 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		granted, err := h.withCredential(t, g.Secret)
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]func(context.Context) error{
			"Get":  func(ctx context.Context) error { return errorOf(h.Get(ctx, "one")) },
			"Stat": func(ctx context.Context) error { return errorOf(h.Files("one").Stat(ctx, brig.Path{Name: "/"})) },
			"Exec": func(ctx context.Context) error {
				return errorOf(h.Exec(ctx, "one", brig.Command{Argv: []string{"echo"}}, brig.IO{}))
			},
			"Visit": func(ctx context.Context) error {
				return h.Authorize(ctx, brig.OpKernels, "", func(brig.Tenant) error { return nil })
			},
			"grant": func(ctx context.Context) error { return errorOf(h.CreateGrant(ctx, brig.GrantSpec{})) },
		}
		ask := func(when string, ctx context.Context, want brig.Kind) {
			t.Helper()
			for what, call := range calls {
				if err := call(ctx); brig.KindOf(err) != want {
					t.Errorf("%s, %s: %v", when, what, err)
				}
			}
		}
		ask("before its end", granted, "")
		time.Sleep(15 * time.Second)
		ask("at its end", granted, brig.Unauthenticated)
		ask("the key, at that time", full, "")
		h.Close()
	})
}

// A credential derived from a key, a grant, a session or a person's token has no
// more rights than its source, and does not outlast it. A new key ends with its
// source only if the source itself expires, because administrators create keys for
// long-term use.
func TestDerivedCredentialsNeverExceedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newIdentityProvider()
		f.roles["42"] = brig.Actor{Tenant: "acme", Role: brig.Admin}
		h := newFixture(t, func(o *engine.Options) { o.Users, o.GrantSeed = f, []byte("a seed of this test's own") })
		admin, k := h.newKeyHolder(t, withRole(t, brig.Operator), brig.KeySpec{Name: "a", Role: brig.Admin, Scopes: []string{"sandbox.", "grant.", "key.", "session."}, TTL: time.Hour})
		g, err := h.CreateGrant(admin, brig.GrantSpec{Scopes: []string{"sandbox.get", "grant.", "key.", "session."}, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		granted, err := h.withCredential(t, g.Secret)
		if err != nil {
			t.Fatal(err)
		}
		s, ask := h.startSession(t, admin)
		a, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		inSession := brig.WithActor(t.Context(), a)
		p, err := h.PersonActor(t.Context(), "token")
		if err != nil {
			t.Fatal(err)
		}
		person := brig.WithActor(t.Context(), p)
		sources := map[string]context.Context{"key": admin, "grant": granted, "session": inSession, "person": person}
		derive := map[string]func(context.Context) (brig.Actor, func() error, error){
			"a grant": func(ctx context.Context) (a brig.Actor, good func() error, _ error) {
				made, err := h.CreateGrant(ctx, brig.GrantSpec{TTL: 24 * time.Hour})
				if err != nil {
					return a, nil, err
				}
				return made.Actor, func() error { return errorOf(h.GrantActor(t.Context(), made.Secret)) }, nil
			},
			"a key": func(ctx context.Context) (a brig.Actor, good func() error, _ error) {
				made, err := h.CreateKey(ctx, brig.KeySpec{Name: "k", Role: brig.ActorFrom(ctx).Role, TTL: 24 * time.Hour})
				if err != nil {
					return a, nil, err
				}
				return made.Actor, func() error { return errorOf(h.KeyActor(t.Context(), sha256.Sum256([]byte(made.Secret)))) }, nil
			},
			"a session": func(ctx context.Context) (a brig.Actor, good func() error, _ error) {
				made, err := h.CreateSession(ctx)
				if err != nil {
					return a, nil, err
				}
				good = func() error { return errorOf(h.SessionActor(t.Context(), sha256.Sum256([]byte(made.Secret)))) }
				a, err = h.SessionActor(t.Context(), sha256.Sum256([]byte(made.Secret)))
				a.Expires = made.Expires
				return a, good, err
			},
		}
		refused := map[string]brig.Kind{
			"a key of grant": brig.PermissionDenied, "a session of grant": brig.PermissionDenied,
			"a session of session": brig.PermissionDenied, "a grant of session": brig.PermissionDenied,
			"a grant of person": brig.FailedPrecondition,
		}
		goOn := map[string]func() error{}
		for from, ctx := range sources {
			for what, make := range derive {
				name := what + " of " + from
				a, good, err := make(ctx)
				if want, no := refused[name]; no || err != nil {
					if brig.KindOf(err) != want {
						t.Errorf("%s: %+v, %v; want %q", name, a, err, want)
					}
					continue
				}
				if src := brig.ActorFrom(ctx); !src.Covers(a) || a.Tenant != src.Tenant {
					t.Errorf("%s may more than it: %+v of %+v", name, a, src)
				}
				if err := good(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				goOn[name] = good
			}
		}
		ends := func(name string, when string, want brig.Kind) {
			t.Helper()
			if err := goOn[name](); brig.KindOf(err) != want {
				t.Errorf("%s, %s: %v", name, when, err)
			}
		}
		time.Sleep(time.Minute)
		ends("a grant of grant", "when that has ended", brig.Unauthenticated)
		ends("a grant of key", "when that has not ended", "")
		if err := h.EndSession(inSession, s.ID); err != nil {
			t.Fatal(err)
		}
		if err := h.RevokeKey(withRole(t, brig.Operator), k.ID); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a grant of key", "a session of key"} {
			ends(name, "when that was revoked", brig.Unauthenticated)
		}
		ends("a session of person", "when a key was revoked", "")
		time.Sleep(time.Hour)
		for name := range goOn {
			ends(name, "an hour later", brig.Unauthenticated)
		}
		h.Close()
	})
}
