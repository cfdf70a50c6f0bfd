package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are the accepted signature algorithms. They exclude "none" and the
// symmetric algorithms, in which the verifier could also sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	// keysTTL is how long fetched keys remain valid. The server accepts a revoked
	// key for at most this time.
	keysTTL = 5 * time.Minute
	// keysStaleTTL is how long fetched keys remain valid while the provider
	// does not respond.
	keysStaleTTL = time.Hour
	// keysMinInterval is the minimum interval between fetches, regardless of the key
	// IDs in tokens.
	keysMinInterval = 10 * time.Second
	// maxAnswer bounds the provider's response.
	maxAnswer = 1 << 20
)

var errNoKey = errors.New("no key of the provider's signed the token")

// keySet holds the provider's keys. It implements oidc.KeySet.
type keySet struct {
	now  func() time.Time
	http *http.Client

	mu        sync.Mutex // guards the fields below
	url       string
	keys      []jose.JSONWebKey
	fetchedAt time.Time // the time of the last fetch
	triedAt   time.Time
	failed    error         // the error of the last fetch
	fetching  chan struct{} // closed when the running fetch ends; nil if none runs
}

func (s *keySet) setURL(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url = url
}

// VerifySignature implements oidc.KeySet.
func (s *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSigned(token, algorithms)
	if err != nil {
		return nil, err
	}
	if len(jws.Signatures) != 1 {
		return nil, errNoKey
	}
	h := jws.Signatures[0].Header
	keys, err := s.findKeys(ctx, h)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if payload, err := jws.Verify(&keys[i]); err == nil {
			return payload, nil
		}
	}
	return nil, errNoKey
}

// findKeys returns the keys that match a header. While keys are fetched, it waits
// only if it has no valid keys, and not longer than ctx: a token with an unknown
// key and a provider that does not answer must not hold up other tokens.
func (s *keySet) findKeys(ctx context.Context, h jose.Header) ([]jose.JSONWebKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	found := s.matchingKeys(h)
	if age := now.Sub(s.fetchedAt); len(found) > 0 && age < keysTTL {
		return found, nil
	}
	if s.fetching == nil && (s.triedAt.IsZero() || now.Sub(s.triedAt) >= keysMinInterval) {
		s.fetching = make(chan struct{})
		go s.refresh(context.WithoutCancel(ctx), s.url, now) // all waiting callers use the result
	}
	if fetching := s.fetching; fetching != nil {
		s.mu.Unlock()
		select {
		case <-fetching:
		case <-ctx.Done():
		}
		s.mu.Lock()
		found = s.matchingKeys(h)
	}
	if err := ctx.Err(); err != nil && len(found) == 0 || now.Sub(s.fetchedAt) >= keysStaleTTL {
		return nil, fmt.Errorf("the provider's keys cannot be had: %w", errors.Join(s.failed, err))
	}
	return found, nil
}

// refresh fetches the keys.
func (s *keySet) refresh(ctx context.Context, url string, now time.Time) {
	keys, err := s.fetch(ctx, url)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.triedAt = s.now()
	if s.failed = err; err == nil {
		s.keys, s.fetchedAt = keys, now
	}
	close(s.fetching)
	s.fetching = nil
}

// isStale reports whether no valid keys are available, so that no signature can
// be verified.
func (s *keySet) isStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Sub(s.fetchedAt) >= keysStaleTTL
}

// matchingKeys returns the keys that match the key ID and the algorithm of a
// header. If the header has no key ID, it refers to the only key.
func (s *keySet) matchingKeys(h jose.Header) (out []jose.JSONWebKey) {
	for _, k := range s.keys {
		if (k.KeyID == h.KeyID || h.KeyID == "" && len(s.keys) == 1) && (k.Algorithm == "" || k.Algorithm == h.Algorithm) {
			out = append(out, k)
		}
	}
	return out
}

func (s *keySet) fetch(ctx context.Context, url string) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the provider's keys: HTTP %d", resp.StatusCode)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		return nil, err
	}
	var out []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		// Ignore keys that are invalid or not for signatures.
		if json.Unmarshal(raw, &k) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") && !isSymmetric(k) {
			out = append(out, k)
		}
	}
	return out, nil
}

func isSymmetric(k jose.JSONWebKey) bool {
	_, secret := k.Key.([]byte)
	return secret || k.Algorithm != "" && !slices.Contains(algorithms, jose.SignatureAlgorithm(k.Algorithm))
}

// boundedTransport is a transport that limits the size of responses.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}
