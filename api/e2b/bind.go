package e2b

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

type boundTo struct{}

// sourceIn is the source to whose token a request is held; empty where tokens are
// the sandbox's own.
func (d *Door) sourceIn(r *http.Request) string {
	source, _ := r.Context().Value(boundTo{}).(string)
	return source
}

// bind finds the source of the token that r shows, a key or a grant. The request
// is then the source's: it may do what that may, and ends when that does. What
// shows no such token stays the sandbox's own affair; where a token is needed it
// is refused there. The caller calls done.
func (d *Door) bind(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, t target) (_ *http.Request, done func(), err error) {
	nothing := func() {}
	if d.Options.KeyActor == nil {
		return r, nothing, nil
	}
	source := d.shown(r, s, t)
	if source == "" {
		// No token of nobody's is good: one that is asked for must have a source.
		return r.WithContext(context.WithValue(r.Context(), boundTo{}, noSource)), nothing, nil
	}
	check := func(ctx context.Context) (brig.Actor, error) {
		a, err := d.actorOf(ctx, source)
		if err == nil && (a.Tenant != s.Tenant || a.Role < brig.Member) {
			err = brig.Errorf(brig.Unauthenticated, "the token is not for this sandbox")
		}
		return a, err
	}
	proof, err := door.Vouch(r.Context(), source, check)
	if brig.KindOf(err) == brig.Unauthenticated {
		return r, nothing, brig.Errorf(brig.Unauthenticated, "what this access token was made of is good no more").Because(err)
	}
	if err != nil {
		return r, nothing, err
	}
	r, done = d.ring.Use(w, r, proof)
	return r.WithContext(context.WithValue(r.Context(), boundTo{}, source)), done, nil
}

// noSource stands for the source of a request that has shown no token.
const noSource = "-"

// shown is the source of the token that r has shown, as a header or by a
// signature. A token that is wrong has none.
func (d *Door) shown(r *http.Request, s *brig.Sandbox, t target) string {
	id := string(s.ID)
	if token := r.Header.Get(headerToken); token != "" {
		if source := sourceOfToken(token); source != "" && equal(token, d.token(id, source)) {
			return source
		}
		return ""
	}
	if token := r.Header.Get(headerTraffic); token != "" && t.port != portEnvd {
		if source := sourceOfToken(token); source != "" && equal(token, d.trafficToken(id, source)) {
			return source
		}
		return ""
	}
	if t.port != portEnvd || !isSigned(r) || len(r.URL.RawQuery) > mostSigned {
		return ""
	}
	got, want := r.URL.Query().Get("signature"), signature(r)
	for _, key := range d.signers(r.Context(), s) {
		if key != "" && equal(got, want(d.token(id, key))) {
			return key
		}
	}
	return ""
}

// signers are the keys that may have signed a URL: those that were told the
// sandbox's token, and, as an earlier server may have told it, all others of
// the tenant.
func (d *Door) signers(ctx context.Context, s *brig.Sandbox) []string {
	keys := d.known.keys(string(s.ID))
	if d.TenantKeys != nil {
		more, err := d.TenantKeys(ctx, s.Tenant)
		if err != nil {
			d.Log.WarnContext(ctx, "e2b: look for keys that may have signed", "error", err)
		}
		keys = append(keys, more...)
	}
	return keys
}

// mayHaveSigned is signers of a sandbox that nobody has named. Whoever asks
// has shown nothing yet, so those of an earlier server are looked for only
// where this one has told nobody.
func (d *Door) mayHaveSigned(ctx context.Context, id string) []string {
	keys := d.known.keys(id)
	if len(keys) > 1 || d.TenantKeys == nil {
		return keys
	}
	tenant, err := d.Owner(ctx, id)
	if err != nil {
		return keys
	}
	more, err := d.TenantKeys(ctx, tenant)
	if err != nil || len(more) > maxTold {
		return keys
	}
	for _, key := range more {
		d.known.told(id, key) // so that they are looked for once
	}
	return append(keys, more...)
}
