package e2b

import (
	"context"
	"net/http"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

type boundTo struct{}

// sourceIn returns the token source to which the request is bound. The source
// is empty if tokens belong to the sandbox itself.
func (k *tokens) sourceIn(r *http.Request) string {
	source, _ := r.Context().Value(boundTo{}).(string)
	return source
}

// bind finds the source of the token in r for a tenant's sandbox. A source is a
// key or a grant. The returned request has the rights of that source, and its
// context ends when the source becomes invalid. A request without such a token
// keeps the rights of the sandbox, and the handlers that need a token reject
// it. The caller must call done.
func (k *tokens) bind(w http.ResponseWriter, r *http.Request, t target, tenant string) (_ *http.Request, done func(), err error) {
	nothing := func() {}
	if k.Options.KeyActor == nil {
		return r, nothing, nil
	}
	source := k.presentedSource(r, t, tenant)
	if source == "" {
		// A token without a source is not valid here, so handlers that need a
		// token must reject the request.
		return r.WithContext(context.WithValue(r.Context(), boundTo{}, noSource)), nothing, nil
	}
	check := func(ctx context.Context) (brig.Actor, error) {
		a, err := k.actorOf(ctx, source)
		if err == nil && (a.Tenant != tenant || a.Role < brig.Member) {
			err = brig.Errorf(brig.Unauthenticated, "the token is not for this sandbox")
		}
		return a, err
	}
	proof, err := httpapi.NewProof(r.Context(), source, check)
	if brig.KindOf(err) == brig.Unauthenticated {
		return r, nothing, brig.Errorf(brig.Unauthenticated, "the key or grant of this access token is no longer valid").Because(err)
	}
	if err != nil {
		return r, nothing, err
	}
	r, done = k.keyring.Bind(w, r, proof)
	return r.WithContext(context.WithValue(r.Context(), boundTo{}, source)), done, nil
}

// noSource is the source of a request without a token.
const noSource = "-"

// presentedSource returns the source of the token in r for a tenant's sandbox. The token is
// in a header, or r's URL was signed with it. The source is empty for a wrong token.
func (k *tokens) presentedSource(r *http.Request, t target, tenant string) string {
	id := t.id
	if t.port != portEnvd && t.port != portCode {
		return k.portSource(r, id)
	}
	if token := r.Header.Get(headerToken); token != "" {
		if source := sourceOfToken(token); source != "" && equalSecrets(token, k.token(id, source)) {
			return source
		}
		return ""
	}
	if token := r.Header.Get(headerTraffic); token != "" && t.port != portEnvd {
		if source := sourceOfToken(token); source != "" && equalSecrets(token, k.trafficToken(id, source)) {
			return source
		}
		return ""
	}
	if t.port != portEnvd || !isSigned(r) || len(r.URL.RawQuery) > maxSignedText {
		return ""
	}
	key, _ := k.signer(r.Context(), id, tenant, newURLSignature(r))
	return key
}

// portSource returns the source of a sandbox's token in a request to a program
// in the sandbox. The traffic token takes precedence. The program may use the
// same headers for its own tokens, so wrong tokens are ignored.
func (k *tokens) portSource(r *http.Request, id string) string {
	for _, token := range r.Header.Values(headerTraffic) {
		if source := sourceOfToken(token); source != "" && equalSecrets(token, k.trafficToken(id, source)) {
			return source
		}
	}
	for _, token := range r.Header.Values(headerToken) {
		if source := sourceOfToken(token); source != "" && equalSecrets(token, k.token(id, source)) {
			return source
		}
	}
	return ""
}

// hasTrafficToken reports whether a request has the traffic token of a sandbox
// for a source.
func (k *tokens) hasTrafficToken(r *http.Request, id, source string) bool {
	want := k.trafficToken(id, source)
	return slices.ContainsFunc(r.Header.Values(headerTraffic), func(got string) bool { return equalSecrets(got, want) })
}
