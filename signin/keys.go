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

// algorithms are those by which a token may be signed: none, and those for
// which the verifier's key would be the signer's, are not among them.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	// keysAge is for how long the provider's keys are taken to be its keys
	// still. One that it has taken back is good for as long at most.
	keysAge = 5 * time.Minute
	// keysLast is for how long they are when it does not answer.
	keysLast = time.Hour
	// keysPause is how often it is asked at most, whatever keys tokens name.
	keysPause = 10 * time.Second
	// maxAnswer bounds what the provider answers.
	maxAnswer = 1 << 20
)

var errNoKey = errors.New("no key of the provider's signed the token")

// keySet are the provider's keys. It implements oidc.KeySet.
type keySet struct {
	now  func() time.Time
	http *http.Client

	mu    sync.Mutex // guards the fields below, also while keys are fetched
	url   string
	keys  []jose.JSONWebKey
	had   time.Time // when they were fetched
	tried time.Time
}

func (s *keySet) at(url string) {
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
	keys, err := s.of(ctx, h)
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

// of returns the keys that a header may mean.
func (s *keySet) of(ctx context.Context, h jose.Header) ([]jose.JSONWebKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	found := s.named(h)
	if age := now.Sub(s.had); len(found) > 0 && age < keysAge {
		return found, nil
	}
	var failed error
	if s.tried.IsZero() || now.Sub(s.tried) >= keysPause {
		s.tried = now
		var keys []jose.JSONWebKey
		keys, failed = s.fetch(ctx)
		s.tried = s.now() // whoever waited for this answer does not ask again
		if failed == nil {
			s.keys, s.had = keys, now
			found = s.named(h)
		}
	}
	if now.Sub(s.had) >= keysLast {
		return nil, fmt.Errorf("the provider's keys cannot be had: %w", errors.Join(failed, ctx.Err()))
	}
	return found, nil
}

// stale reports whether there are no keys by which anything could be told.
func (s *keySet) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Sub(s.had) >= keysLast
}

// named are the keys of a name and an algorithm. A header without a name means
// the only key that there is.
func (s *keySet) named(h jose.Header) (out []jose.JSONWebKey) {
	for _, k := range s.keys {
		if (k.KeyID == h.KeyID || h.KeyID == "" && len(s.keys) == 1) && (k.Algorithm == "" || k.Algorithm == h.Algorithm) {
			out = append(out, k)
		}
	}
	return out
}

func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime) // it is for all who wait
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
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
		// One that is not understood is not ours to use.
		if json.Unmarshal(raw, &k) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") && !symmetric(k) {
			out = append(out, k)
		}
	}
	return out, nil
}

func symmetric(k jose.JSONWebKey) bool {
	_, secret := k.Key.([]byte)
	return secret || k.Algorithm != "" && !slices.Contains(algorithms, jose.SignatureAlgorithm(k.Algorithm))
}

// bounded is a transport whose answers are not read beyond a bound.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.RoundTripper
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}
