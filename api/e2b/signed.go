package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// isSigned reports whether r has a signed URL that names no sandbox.
func isSigned(r *http.Request) bool {
	return r.URL.Path == "/files" && r.URL.Query().Get("signature") != ""
}

// signature returns a function that computes the signature of r's URL for a
// given token.
func signature(r *http.Request) func(token string) string {
	q, op := r.URL.Query(), "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	// The data plane rejects these URLs as ambiguous, so no signature matches
	// them.
	if strings.ContainsRune(q.Get("username"), ':') || len(q["path"]) > 1 || len(q["username"]) > 1 {
		return func(string) string { return "" }
	}
	before, after := q.Get("path")+":"+op+":"+q.Get("username")+":", ""
	if exp := q.Get("signature_expiration"); exp != "" {
		after = ":" + exp
	}
	return func(token string) string { return sign(before + token + after) }
}

// maxSignedText is the maximum length in bytes of a signed URL's query. For a
// client that is not authenticated yet, the query is hashed once per sandbox.
const maxSignedText = 8 << 10

func sign(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// signer returns the key with whose token r's URL was signed for a sandbox of a
// tenant. The key is empty if the token belongs to the sandbox itself. Every
// key of the tenant may have received the token, also from an earlier server,
// and whichever keys have connected since.
func (k *tokens) signer(r *http.Request, id, tenant string) (key string, ok bool) {
	got, want := r.URL.Query().Get("signature"), signature(r)
	if key, ok = k.signerAmong(k.cache.receivers(id), id, got, want); ok {
		return key, true
	}
	return k.signerAmong(k.tenantKeys(r.Context(), tenant), id, got, want)
}

// signerAmong returns that of some keys whose token has the signature got.
func (k *tokens) signerAmong(keys []string, id, got string, want func(token string) string) (key string, ok bool) {
	for _, key := range keys {
		if equalSecrets(got, want(k.token(id, key))) {
			return key, true
		}
	}
	return "", false
}

// tenantKeys returns the ids of a tenant's keys. The store is read once: later
// keys are added when they receive a token.
func (k *tokens) tenantKeys(ctx context.Context, tenant string) []string {
	keys, loaded := k.cache.keysOf(tenant)
	if loaded || k.TenantKeys == nil {
		return keys
	}
	stored, err := k.TenantKeys(ctx, tenant)
	if err != nil {
		k.Log.WarnContext(ctx, "e2b: failed to list the keys that may have signed a URL", "error", err)
		return keys
	}
	k.cache.addKeys(tenant, stored)
	keys, _ = k.cache.keysOf(tenant)
	return keys
}

// serveSigned finds the sandbox whose token signed r's URL, and forwards r to the
// data plane of that sandbox. The data plane also checks the expiry.
func (p *ports) serveSigned(w http.ResponseWriter, r *http.Request) {
	if allowPages(w, r) {
		return
	}
	if err := p.signatureLimit.Check(r); err != nil {
		p.fail(w, r, err)
		return
	}
	if len(r.URL.RawQuery) <= maxSignedText {
		if id := p.signedByReceiver(r); id != "" {
			p.serve(w, r, target{id: id, port: portEnvd})
			return
		}
	}
	// The request counts as a guess before the search, so that a burst from one
	// address cannot occupy the search.
	release, err := p.signatureLimit.Hold(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	id := ""
	if len(r.URL.RawQuery) <= maxSignedText {
		if id, err = p.signedSandbox(r); err != nil {
			p.fail(w, r, err)
			return
		}
	}
	if id == "" {
		p.fail(w, r, brig.Errorf(brig.Unauthenticated, "invalid signature"))
		return
	}
	release()
	p.serve(w, r, target{id: id, port: portEnvd})
}

// signedByReceiver returns the id of the sandbox whose token signed r's URL, if a key
// that received the token from this API signed it.
func (p *ports) signedByReceiver(r *http.Request) (id string) {
	got, want := r.URL.Query().Get("signature"), signature(r)
	for id := range p.tokens.candidates() {
		if r.Context().Err() != nil {
			return ""
		}
		if _, ok := p.tokens.signerAmong(p.cache.receivers(id), id, got, want); ok {
			return id
		}
	}
	return ""
}

// signedSandbox returns the id of the sandbox whose token signed r's URL, or an
// empty id. Only one request at a time compares the keys of all tenants, because the
// client is not authenticated yet.
func (p *ports) signedSandbox(r *http.Request) (id string, err error) {
	ctx := r.Context()
	got, want := r.URL.Query().Get("signature"), signature(r)
	if p.TenantKeys == nil {
		return "", nil
	}
	select {
	case p.searching <- struct{}{}:
		defer func() { <-p.searching }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if p.Existing != nil {
		if err := p.cache.load(func() ([]string, error) { return p.Existing(ctx) }); err != nil {
			return "", err
		}
	}
	for id, tenant := range p.tokens.candidates() {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if tenant == "" {
			if tenant, err = p.Owner(ctx, id); err != nil {
				continue // it has just ended
			}
			p.cache.add(id, tenant)
		}
		if key, ok := p.tokens.signerAmong(p.tokens.tenantKeys(ctx, tenant), id, got, want); ok {
			p.cache.recordKey(id, tenant, key)
			return id, nil
		}
	}
	return "", nil
}
