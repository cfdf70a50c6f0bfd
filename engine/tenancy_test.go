package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// withCredential returns the context of a caller with a key or a grant, or an
// error.
func (h *fixture) withCredential(t *testing.T, secret string) (context.Context, error) {
	t.Helper()
	a, err := h.KeyActor(t.Context(), sha256.Sum256([]byte(secret)))
	if strings.HasPrefix(secret, brig.GrantPrefix) {
		a, err = h.GrantActor(t.Context(), secret)
	}
	return brig.WithActor(t.Context(), a), err
}

// newKeyHolder creates a key and returns it with the context of a caller who
// uses it.
func (h *fixture) newKeyHolder(t *testing.T, by context.Context, spec brig.KeySpec) (context.Context, *brig.NewKey) {
	t.Helper()
	k, err := h.CreateKey(by, spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := h.withCredential(t, k.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, k
}

func newSeedFixture(t *testing.T) *fixture {
	return newFixture(t, func(o *engine.Options) { o.GrantSeed = []byte("a seed of this test's own") })
}

// The secret of a key is returned only at its creation. The key authenticates its
// holder until it is revoked.
func TestKeyAuthenticatesUntilRevoked(t *testing.T) {
	h := newSeedFixture(t)
	admin := withRole(t, brig.Admin)
	ctx, k := h.newKeyHolder(t, admin, brig.KeySpec{Name: "ci", Role: brig.Member, Scopes: []string{"sandbox."}})
	if a := brig.ActorFrom(ctx); a.Name != "ci" || a.Tenant != "acme" || a.Role != brig.Member || a.Key != k.ID {
		t.Errorf("it proves %+v", a)
	}
	if !strings.HasPrefix(k.Secret, "brig_") || len(k.Secret) < 5+52 || !strings.HasPrefix(k.Secret, k.Prefix) || len(k.Prefix) > 9 {
		t.Errorf("the key is %q, shown as %q", k.Secret, k.Prefix)
	}
	e2b, err := h.CreateKey(admin, brig.KeySpec{Name: "sdk", Role: brig.Member, Kind: brig.E2BKey})
	if err != nil || !strings.HasPrefix(e2b.Secret, "e2b_") || len(e2b.Secret) != 44 || strings.Trim(e2b.Secret[4:], "0123456789abcdef") != "" {
		t.Errorf("a key for E2B's clients: %+v, %v", e2b, err)
	}
	list, err := h.Keys(admin, "")
	if err != nil || len(list) != 2 || list[0].Hash != [32]byte{} {
		t.Fatalf("Keys: %+v, %v", list, err)
	}
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Errorf("in its scope: %v", err)
	}
	for what, err := range map[string]error{
		"Run":  errorOf(h.Run(ctx, brig.Program{Command: []string{"echo"}}, brig.IO{})),
		"Stat": errorOf(h.Files("box").Stat(ctx, brig.Path{Name: "/"})),
		"Keys": errorOf(h.Keys(ctx, "")),
	} {
		if brig.KindOf(err) != brig.PermissionDenied {
			t.Errorf("%s beyond the scope or the role: %v", what, err)
		}
	}
	if err := h.RevokeKey(admin, k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.withCredential(t, k.Secret); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("a revoked key: %v", err)
	}
}

func errorOf[T any](_ T, err error) error { return err }

// A caller cannot create a key with more rights than its own: no higher role,
// no wider scope, no later expiry and no other tenant.
func TestCreateKeyNeverExceedsCaller(t *testing.T) {
	h := newSeedFixture(t)
	admin := withRole(t, brig.Admin)
	narrow, _ := h.newKeyHolder(t, admin, brig.KeySpec{Name: "narrow", Role: brig.Admin, Scopes: []string{"key.", "sandbox.get"}, TTL: time.Hour})
	for what, c := range map[string]struct {
		by   context.Context
		spec brig.KeySpec
		want brig.Kind
	}{
		"a role above":        {admin, brig.KeySpec{Name: "x", Role: brig.Operator}, brig.PermissionDenied},
		"another tenant":      {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, Tenant: "rival"}, brig.NotFound},
		"no tenant":           {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, Tenant: "nobody"}, brig.NotFound},
		"no name":             {admin, brig.KeySpec{Role: brig.Viewer}, brig.InvalidArgument},
		"no role":             {admin, brig.KeySpec{Name: "x"}, brig.InvalidArgument},
		"no such scope":       {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, Scopes: []string{"sandbok."}}, brig.InvalidArgument},
		"the empty scope":     {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, Scopes: []string{""}}, brig.InvalidArgument},
		"no such kind":        {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, Kind: "aws"}, brig.InvalidArgument},
		"a negative time":     {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, TTL: -1}, brig.InvalidArgument},
		"ten years":           {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, TTL: 10 * 365 * 24 * time.Hour}, ""},
		"more than ten years": {admin, brig.KeySpec{Name: "x", Role: brig.Viewer, TTL: 10*365*24*time.Hour + 1}, brig.InvalidArgument},
		"a wider scope":       {narrow, brig.KeySpec{Name: "x", Role: brig.Viewer, Scopes: []string{"sandbox."}}, brig.PermissionDenied},
		"an operator's":       {withRole(t, brig.Operator), brig.KeySpec{Name: "x", Role: brig.Admin, Tenant: "rival"}, ""},
		"as much as its own":  {narrow, brig.KeySpec{Name: "x", Role: brig.Admin}, ""},
		"a member makes none": {withRole(t, brig.Member), brig.KeySpec{Name: "x", Role: brig.Viewer}, brig.PermissionDenied},
	} {
		if _, err := h.CreateKey(c.by, c.spec); brig.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	k, err := h.CreateKey(narrow, brig.KeySpec{Name: "x", Role: brig.Viewer, TTL: 24 * time.Hour})
	if err != nil || !k.Actor.Expires.Equal(brig.ActorFrom(narrow).Expires) || len(k.Actor.Scopes) != 2 {
		t.Errorf("made by a key that ends: %+v, %v", k, err)
	}
	_, above := h.newKeyHolder(t, withRole(t, brig.Operator), brig.KeySpec{Name: "op", Role: brig.Operator})
	if err := h.RevokeKey(admin, above.ID); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("an admin revokes an operator's key: %v", err)
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Admin})
	foreignErr, missingErr := brig.AsError(h.RevokeKey(rival, above.ID)), brig.AsError(h.RevokeKey(rival, "k-none"))
	if foreignErr.Kind != brig.NotFound || strings.ReplaceAll(foreignErr.Message, above.ID, "k-none") != missingErr.Message {
		t.Errorf("another tenant's key is %v, and one that never was is %v", foreignErr, missingErr)
	}
}

// A key's name appears as the actor of calls, so it must not contain invisible
// or reordering characters. As a control, letters of any script are valid.
func TestKeyNamesRejectInvisibleCharacters(t *testing.T) {
	h := newSeedFixture(t)
	for name, good := range map[string]bool{
		"deploy": true, "Zoë's laptop": true, "クラスタ": true,
		"ann\u202enimda": false, "admin\u200b": false, "\u2066admin": false, "ad\u00admin": false,
		"a\u2028b": false, "a\u009b31m": false, "a\x1b]52;c;aGk=\a": false, "a\ue000": false, "a\xff": false,
	} {
		if _, err := h.CreateKey(withRole(t, brig.Admin), brig.KeySpec{Name: name, Role: brig.Viewer}); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A key with an expiry is valid until it expires.
func TestKeysExpire(t *testing.T) {
	now := time.Now()
	h := newFixture(t, func(o *engine.Options) { o.Now = func() time.Time { return now } })
	k, err := h.CreateKey(withRole(t, brig.Admin), brig.KeySpec{Name: "x", Role: brig.Viewer, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour - 1)
	if _, err := h.withCredential(t, k.Secret); err != nil {
		t.Errorf("before its end: %v", err)
	}
	now = now.Add(1)
	if _, err := h.withCredential(t, k.Secret); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("after its end: %v", err)
	}
}

// An expired credential was issued by this server, so it does not count as a guess. Forged,
// unknown and deleted credentials do count.
func TestEndedCredentialsAreGenuine(t *testing.T) {
	now := time.Now()
	f := newIdentityProvider()
	h := newFixture(t, func(o *engine.Options) {
		o.Now, o.GrantSeed, o.Users = func() time.Time { return now }, []byte("a seed of this test's own"), f
	})
	admin := withRole(t, brig.Admin)
	key := func() (context.Context, *brig.NewKey) {
		return h.newKeyHolder(t, admin, brig.KeySpec{Name: "x", Role: brig.Member, TTL: 10 * time.Hour})
	}
	grantOf := func(ctx context.Context, ttl time.Duration) string {
		t.Helper()
		g, err := h.CreateGrant(ctx, brig.GrantSpec{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return g.Secret
	}
	kept, k := key()
	short := grantOf(kept, time.Hour)
	revoked, r := key()
	ofRevoked := grantOf(revoked, 10*time.Hour)
	if err := h.RevokeKey(admin, r.ID); err != nil {
		t.Fatal(err)
	}
	_, session := h.startSession(t, kept)
	verify := func(secret string) error { return errorOf(h.withCredential(t, secret)) }
	for what, err := range map[string]error{"a key": verify(k.Secret), "a grant": verify(short), "a session": errorOf(session())} {
		if err != nil {
			t.Errorf("%s before its end: %v", what, err)
		}
	}
	early := verify(ofRevoked)
	other := byte('A') // replaces a character inside the signature; at its end, some bits are ignored
	if short[len(short)-8] == other {
		other = 'B'
	}
	forged := short[:len(short)-8] + string(other) + short[len(short)-7:]
	now = now.Add(2 * time.Hour)
	expiredGrant := verify(short)
	now = now.Add(24 * time.Hour)
	delete(f.roles, "42")
	for what, c := range map[string]struct {
		err     error
		genuine bool
	}{
		"an expired key":          {verify(k.Secret), true},
		"an expired grant":        {expiredGrant, true},
		"a revoked key's grant":   {early, true},
		"an expired key's grant":  {verify(short), true},
		"an ended session":        {errorOf(session()), true},
		"a person without a role": {errorOf(h.PersonActor(t.Context(), "token")), true},
		"a forged token":          {errorOf(h.PersonActor(t.Context(), "another")), false},
		"a forged grant":          {verify(forged), false},
		"an unknown key":          {verify("brig_" + strings.Repeat("a", 52)), false},
		"a revoked key":           {verify(r.Secret), false}, // its record is deleted
		"an unknown session":      {errorOf(h.SessionActor(t.Context(), [32]byte{1})), false},
	} {
		if brig.KindOf(c.err) != brig.Unauthenticated || errors.Is(c.err, brig.ErrGenuine) != c.genuine {
			t.Errorf("%s: %v, want genuine: %v", what, c.err, c.genuine)
		}
	}
}

// As SECURITY.md states, sandboxes, leases and processes outlive the credentials that created
// them. A grant applies to a name, not to one sandbox. The scope run suffices to read secrets
// without hosts.
func TestSandboxesOutliveCredentials(t *testing.T) {
	var passed atomic.Int64
	h := newFixture(t, func(o *engine.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		o.GrantSeed = []byte("a seed of this test's own")
	})
	admin := withRole(t, brig.Admin)
	member, k := h.newKeyHolder(t, admin, brig.KeySpec{Name: "m", Role: brig.Member})
	g, err := h.CreateGrant(member, brig.GrantSpec{Sandboxes: []string{"one"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	granted, err := h.withCredential(t, g.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.PutSecret(admin, brig.SecretChange{Name: "visible", Value: []byte("the value")}); err != nil {
		t.Fatal(err)
	}
	uses := []brig.SecretUse{{Name: "visible", Env: "V"}}
	first, err := h.Create(granted, brig.Spec{Name: "one", TTL: time.Hour, Secrets: uses})
	if err != nil || first.Expires.Before(g.Actor.Expires.Add(50*time.Minute)) {
		t.Fatalf("a sandbox of a grant: %+v, %v", first, err)
	}
	if err := h.Remove(member, "one"); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, member, brig.Spec{Name: "one", TTL: time.Hour, Secrets: uses})
	if _, err := h.Get(granted, "one"); err != nil {
		t.Errorf("the next sandbox of the name: %v", err)
	}
	p, err := h.Processes("one").Start(granted, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "3600"}}})
	if err != nil {
		t.Fatal(err)
	}
	passed.Add(int64(2 * time.Minute))
	if _, err := h.Get(granted, "one"); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("the grant after its end: %v", err)
	}
	if err := h.RevokeKey(admin, k.ID); err != nil {
		t.Fatal(err)
	}
	list, err := h.Processes("one").List(admin)
	if err != nil || len(list) != 1 || list[0].PID != p.PID || list[0].Result != nil {
		t.Fatalf("the processes are %+v of %d, %v", *list[0], p.PID, err)
	}
	res, err := h.Exec(admin, "one", brig.Command{Argv: []string{"env", "V"}}, brig.IO{})
	if err != nil || string(res.Stdout.Head) != "the value\n" {
		t.Errorf("the secret in the sandbox: %+v, %v", res, err)
	}
	runner, _ := h.newKeyHolder(t, admin, brig.KeySpec{Name: "r", Role: brig.Member, Scopes: []string{"run"}})
	o, err := h.Run(runner, brig.Program{Command: []string{"env", "V"}, Secrets: uses}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != "the value\n" {
		t.Errorf("the scope run: %+v, %v", o, err)
	}
	if _, err := h.Secrets(runner); brig.KindOf(err) != brig.PermissionDenied { // the control
		t.Errorf("the scope run lists secrets: %v", err)
	}
}

// A grant has a subset of the rights of its key. A derived grant has a subset of
// its parent grant's rights. All grants end with the key.
func TestGrantRightsAreSubset(t *testing.T) {
	h := newSeedFixture(t)
	member, k := h.newKeyHolder(t, withRole(t, brig.Admin), brig.KeySpec{Name: "m", Role: brig.Member})
	for _, name := range []string{"one", "two"} {
		if _, err := h.Create(member, brig.Spec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	g, err := h.CreateGrant(member, brig.GrantSpec{Scopes: []string{"sandbox.", "grant."}, Sandboxes: []string{"one", "three"}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	one, err := h.withCredential(t, g.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Get(one, "one"); err != nil {
		t.Errorf("its own sandbox: %v", err)
	}
	s, err := h.Create(one, brig.Spec{Name: "three"})
	if err != nil {
		t.Errorf("a sandbox of its names: %v", err)
	} else if _, err := h.Get(one, string(s.ID)); err != nil {
		t.Errorf("its own sandbox by id: %v", err)
	}
	for what, err := range map[string]error{
		"a sibling":         errorOf(h.Get(one, "two")),
		"what never was":    errorOf(h.Get(one, "never")),
		"another name":      errorOf(h.Create(one, brig.Spec{Name: "four"})),
		"no name":           errorOf(h.Create(one, brig.Spec{})),
		"all sandboxes":     errorOf(h.List(one, brig.ListOptions{})),
		"beyond its scope":  errorOf(h.Files("one").Stat(one, brig.Path{Name: "/"})),
		"a wider grant":     errorOf(h.CreateGrant(one, brig.GrantSpec{Scopes: []string{"file."}})),
		"a sibling's grant": errorOf(h.CreateGrant(one, brig.GrantSpec{Sandboxes: []string{"two"}})),
		"a higher grant":    errorOf(h.CreateGrant(one, brig.GrantSpec{Role: brig.Admin})),
	} {
		if brig.KindOf(err) != brig.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	less, err := h.CreateGrant(one, brig.GrantSpec{Role: brig.Viewer, Sandboxes: []string{"one"}, TTL: 2 * time.Hour})
	if err != nil || less.Actor.Expires.After(g.Actor.Expires) || less.Actor.Role != brig.Viewer {
		t.Fatalf("a narrower grant: %+v, %v", less, err)
	}
	viewer, err := h.withCredential(t, less.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Kill(viewer, "one"); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("a viewer's grant kills: %v", err)
	}
	for _, bad := range []string{"", "x", "x.y", g.Secret[len(brig.GrantPrefix):] + "x", strings.Replace(g.Secret[len(brig.GrantPrefix):], ".", "A.", 1)} {
		if _, err := h.withCredential(t, brig.GrantPrefix+bad); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("the grant %.20q is taken: %v", bad, err)
		}
	}
	other := newFixture(t, func(o *engine.Options) { o.GrantSeed, o.Store = []byte("another"), h.store })
	if _, err := other.GrantActor(t.Context(), g.Secret); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("another server's grant: %v", err)
	}
	if err := h.RevokeKey(withRole(t, brig.Admin), k.ID); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{g.Secret, less.Secret} {
		if _, err := h.withCredential(t, secret); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("the grant of a revoked key: %v", err)
		}
	}
}

// A tenant can be created, limited, and removed with its keys. No caller can act
// for a tenant that was removed.
func TestRemovedTenantRejectsCallers(t *testing.T) {
	h := newSeedFixture(t)
	op := withRole(t, brig.Operator)
	created, err := h.CreateTenant(op, brig.Tenant{Name: "fresh"})
	if err != nil || created.Quota.Executions != 10 {
		t.Fatalf("CreateTenant: %+v, %v", created, err)
	}
	if _, err := h.CreateTenant(op, brig.Tenant{Name: "fresh"}); brig.KindOf(err) != brig.AlreadyExists {
		t.Errorf("again: %v", err)
	}
	for _, bad := range []brig.Tenant{{Name: "A:b"}, {Name: "x", Quota: brig.Quota{Sandboxes: -1}}, {Name: "x", Ceilings: brig.Ceilings{Images: []string{"["}}}} {
		if _, err := h.CreateTenant(op, bad); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	member, k := h.newKeyHolder(t, op, brig.KeySpec{Name: "m", Role: brig.Member, Tenant: "fresh"})
	if _, err := h.Create(member, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	created.Quota = brig.Quota{Sandboxes: 1}
	if _, err := h.UpdateTenant(op, *created); err != nil {
		t.Fatal(err)
	}
	_, err = h.Create(member, brig.Spec{})
	wantQuota(t, "after the update", err, "sandboxes")
	if err := h.RemoveTenant(op, "fresh"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("removed with a sandbox: %v", err)
	}
	if _, err := h.Kill(member, "box"); err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveTenant(op, "fresh"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("removed with a sandbox that has ended: %v", err)
	}
	if err := h.Remove(member, "box"); err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveTenant(op, "acme"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("the operator's own tenant is removed: %v", err)
	}
	if err := h.RemoveTenant(op, "fresh"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.withCredential(t, k.Secret); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("a key of a tenant that is gone: %v", err)
	}
	if _, err := h.Create(member, brig.Spec{}); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("for a tenant that is gone: %v", err)
	}
	if _, err := h.CreateTenant(op, brig.Tenant{Name: "fresh"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.withCredential(t, k.Secret); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("a key of an earlier tenant of that name: %v", err)
	}
}

// An administrator of a tenant cannot read the audit log of a former tenant of
// the same name. An operator can.
func TestFormerTenantAuditIsHidden(t *testing.T) {
	h := newSeedFixture(t)
	op := withRole(t, brig.Operator)
	read := func(role brig.Role) (lines []brig.AuditLine) {
		t.Helper()
		ctx := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "fresh", Role: role})
		for q := (brig.AuditQuery{Limit: 2}); ; {
			p, err := h.Audit(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, p.Lines...)
			if p.Next == 0 {
				return lines
			}
			q.After = p.Next
		}
	}
	begin := func() context.Context {
		t.Helper()
		if _, err := h.CreateTenant(op, brig.Tenant{Name: "fresh"}); err != nil {
			t.Fatal(err)
		}
		member, _ := h.newKeyHolder(t, op, brig.KeySpec{Name: "m", Role: brig.Member, Tenant: "fresh"})
		return member
	}
	member := begin()
	for range 3 {
		if _, err := h.Create(member, brig.Spec{Name: "box"}); err != nil {
			t.Fatal(err)
		}
		if err := h.Remove(member, "box"); err != nil {
			t.Fatal(err)
		}
	}
	former := read(brig.Admin)
	if len(former) < 6 {
		t.Fatalf("the tenant's own log has %d lines", len(former))
	}
	if err := h.RemoveTenant(op, "fresh"); err != nil {
		t.Fatal(err)
	}
	member = begin()
	if _, err := h.Create(member, brig.Spec{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	last := former[len(former)-1].Seq
	lines := read(brig.Admin)
	if len(lines) == 0 {
		t.Error("the new tenant's own lines are missing")
	}
	for _, l := range lines {
		if l.Seq <= last {
			t.Errorf("an administrator reads line %d of the former tenant: %s %s", l.Seq, l.Op, l.Sandbox)
		}
	}
	// The control: the lines still exist.
	if all := read(brig.Operator); len(all) < len(former)+len(lines) || all[0].Seq != former[0].Seq {
		t.Errorf("an operator reads %d lines, want at least %d", len(all), len(former)+len(lines))
	}
}

// If sandboxes are created while their tenant is being removed, none of them
// remains after a successful removal.
func TestRemovedTenantKeepsNoSandboxes(t *testing.T) {
	for range 20 {
		h := newFixture(t, nil)
		createTenants(t, h.store, "fresh")
		member := brig.WithActor(t.Context(), brig.Actor{Name: "m", Tenant: "fresh", Role: brig.Member})
		op := withRole(t, brig.Operator)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = h.Create(member, brig.Spec{}) })
		}
		err := h.RemoveTenant(op, "fresh")
		wg.Wait()
		recs, _, listErr := h.store.List(t.Context(), "fresh", brig.ListOptions{})
		if listErr != nil || err == nil && len(recs) > 0 {
			t.Fatalf("the tenant was removed and has %d sandboxes, %v", len(recs), listErr)
		}
	}
}

// A scoped ID refers only to a sandbox of its own tenant.
func TestScopedIDFindsOnlyOwnSandbox(t *testing.T) {
	h := newSeedFixture(t)
	ctx := withRole(t, brig.Member)
	s, err := h.Create(ctx, brig.Spec{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ScopedID()
	if want := "acme:box:" + string(s.ID); id != want {
		t.Errorf("it is %s, want %s", id, want)
	}
	if got, err := h.Get(ctx, id); err != nil || got.ID != s.ID {
		t.Errorf("Get(%s) = %+v, %v", id, got, err)
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Admin})
	for what, c := range map[string]struct {
		ctx context.Context
		id  string
	}{
		"another tenant's actor": {rival, id}, "another tenant's name": {ctx, "rival:box:" + string(s.ID)},
		"another name": {ctx, "acme:bix:" + string(s.ID)}, "a name for an id": {ctx, "acme:box:box"},
		"no id": {ctx, "acme:box:"}, "too many parts": {ctx, id + ":x"}, "too few": {ctx, "acme:" + string(s.ID)},
	} {
		_, err := h.Get(c.ctx, c.id)
		if e := brig.AsError(err); e == nil || e.Kind != brig.NotFound || e.Hint != "list sandboxes to see what exists" {
			t.Errorf("%s: %v", what, err)
		}
	}
}
