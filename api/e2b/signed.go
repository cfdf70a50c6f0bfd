package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// isSigned reports whether r has a signed URL that names no sandbox.
func isSigned(r *http.Request) bool {
	return r.URL.Path == "/files" && r.URL.Query().Get("signature") != ""
}

// urlSignature is the signature of a URL, and the text that it signs.
type urlSignature struct {
	got    string
	before hash.Hash // of the text before the token; nil if no signature matches
	after  string
	turn   *httpapi.SecondChanceTurn // nil if the address is not limited
}

// newURLSignature returns the signature of r's URL.
func newURLSignature(r *http.Request) urlSignature {
	q, op := r.URL.Query(), "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	u := urlSignature{got: q.Get("signature")}
	exp := q.Get("signature_expiration")
	// The data plane rejects these URLs as ambiguous, so no signature matches
	// them. A valid expiration has at most maxExpiration digits.
	if strings.ContainsRune(q.Get("username"), ':') || len(q["path"]) > 1 || len(q["username"]) > 1 || len(exp) > maxExpiration {
		return u
	}
	if exp != "" {
		u.after = ":" + exp
	}
	u.before = sha256.New()
	u.before.Write([]byte(q.Get("path") + ":" + op + ":" + q.Get("username") + ":"))
	return u
}

// isOf reports whether the URL was signed with a token. It hashes the URL's path, which
// may be long, only once for all tokens.
func (u urlSignature) isOf(token string) bool {
	if u.before == nil {
		return false
	}
	h, err := u.before.(hash.Cloner).Clone()
	if err != nil {
		return false // a hash of the standard library can be cloned
	}
	h.Write([]byte(token + u.after))
	return equalSecrets(u.got, "v1_"+base64.RawStdEncoding.EncodeToString(h.Sum(nil)))
}

const (
	// maxSignedText is the maximum length in bytes of a signed URL's query.
	maxSignedText = 8 << 10
	// maxExpiration is the maximum number of digits of an expiration.
	maxExpiration = 20
)

// signer returns the key with whose token a URL was signed for a sandbox of a
// tenant. The key is empty if the token belongs to the sandbox itself. Every
// key of the tenant may have received the token, possibly from an earlier
// server process, regardless of the keys that have connected since.
func (k *tokens) signer(ctx context.Context, id, tenant string, u urlSignature) (key string, ok bool) {
	if key, ok = k.signerAmong(k.cache.receivers(id), id, u); ok {
		return key, true
	}
	return k.otherSigner(ctx, id, tenant, u)
}

// otherSigner is like signer, for the keys that did not receive the sandbox's token from this
// API.
func (k *tokens) otherSigner(ctx context.Context, id, tenant string, u urlSignature) (key string, ok bool) {
	resume := u.turn.Wait() // the store may have to be read
	keys := k.otherKeys(ctx, id, tenant)
	resume()
	return k.signerAmong(keys, id, u)
}

// otherKeys returns the keys of a tenant that did not receive a sandbox's token
// from this API. The keys that did have already been compared.
func (k *tokens) otherKeys(ctx context.Context, id, tenant string) []string {
	compared := map[string]bool{}
	for _, key := range k.cache.receivers(id) {
		compared[key] = true
	}
	return slices.DeleteFunc(k.tenantKeys(ctx, tenant), func(key string) bool { return compared[key] })
}

// signerAmong returns the key in keys whose token signed a URL.
func (k *tokens) signerAmong(keys []string, id string, u urlSignature) (key string, ok bool) {
	for _, key := range keys {
		if u.isOf(k.token(id, key)) {
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
	id, err := p.signedSandbox(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.serve(w, r, target{id: id, port: portEnvd})
}

// signedSandbox returns the id of the sandbox whose token signed r's URL. A
// valid signature is always found. Only wrong signatures count as guesses and
// are answered with RateLimited. If the address has guessed before, the search
// waits for its turn, so that guesses use little CPU time.
func (p *ports) signedSandbox(r *http.Request) (id string, err error) {
	if len(r.URL.RawQuery) > maxSignedText {
		return "", errWrongSignature()
	}
	u := newURLSignature(r)
	if p.signatureLimit.Check(r) == nil {
		if id := p.signedByReceiver(r.Context(), u); id != "" {
			return id, nil
		}
		// The request counts as a guess before the search, so that a burst from one
		// address cannot occupy the search.
		if release, err := p.signatureLimit.Hold(r); err == nil {
			if id, err = p.signedByOther(r.Context(), u); err != nil {
				return "", err
			}
			if id == "" {
				return "", errWrongSignature()
			}
			release()
			return id, nil
		}
	}
	turn, ok := p.limitedSearches.Begin(r)
	if !ok {
		return "", p.tooManySignatures(r)
	}
	defer turn.End()
	u.turn = turn
	if id := p.signedByReceiver(r.Context(), u); id != "" {
		return id, nil
	}
	if id, err = p.signedByOther(r.Context(), u); err == nil && id == "" {
		err = p.tooManySignatures(r)
	}
	return id, err
}

func errWrongSignature() error { return brig.Errorf(brig.Unauthenticated, "invalid signature") }

// tooManySignatures returns the error for a wrong signature from an address that has
// guessed before.
func (p *ports) tooManySignatures(r *http.Request) error {
	if err := p.signatureLimit.Check(r); err != nil {
		return err
	}
	return errWrongSignature() // the address has waited long enough since its last guess
}

// signedByReceiver returns the id of the sandbox whose token signed a URL, if a key
// that received the token from this API signed it.
func (p *ports) signedByReceiver(ctx context.Context, u urlSignature) (id string) {
	for id := range p.tokens.candidates() {
		if ctx.Err() != nil {
			return ""
		}
		if _, ok := p.tokens.signerAmong(p.cache.receivers(id), id, u); ok {
			return id
		}
	}
	return ""
}

// signedByOther returns the id of the sandbox whose token signed a URL, if another key
// of its tenant signed it, or an empty id. Only one request at a time compares the keys
// of all tenants, because the client is not authenticated yet.
func (p *ports) signedByOther(ctx context.Context, u urlSignature) (id string, err error) {
	if p.TenantKeys == nil {
		return "", nil
	}
	resume := u.turn.Wait()
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
	resume()
	for id, tenant := range p.tokens.candidates() {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if tenant == "" {
			resume := u.turn.Wait()
			tenant, err = p.Owner(ctx, id)
			resume()
			if err != nil {
				continue // the sandbox has just ended
			}
			p.cache.add(id, tenant)
		}
		if key, ok := p.tokens.otherSigner(ctx, id, tenant, u); ok {
			p.cache.recordKey(id, tenant, key)
			return id, nil
		}
	}
	return "", nil
}
