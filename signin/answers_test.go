package signin_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/signin"
)

// TestMemoryForProviderResponsesIsLimited checks that endless responses of an identity
// provider use a bounded amount of memory. The control is the client without
// limits.
func TestMemoryForProviderResponsesIsLimited(t *testing.T) {
	for name, c := range map[string]struct {
		keys         bool // attack the key set; otherwise the discovery document
		status       int
		first, again string
	}{
		"a document":        {status: 200, first: `{"a":"`, again: "x"},
		"an error":          {status: 500, again: "x"},
		"a key set":         {keys: true, status: 200, first: `{"a":"`, again: "x"},
		"many keys":         {keys: true, status: 200, first: `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}`, again: `,{"kty":"RSA","n":"AQAB","e":"AQAB"}`},
		"a key set's error": {keys: true, status: 500, again: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			i, now := newIDP(t), time.Now()
			endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				testenv.WriteEndless(w, c.first, c.again, 192<<20)
			}))
			defer endless.Close()
			issuer := ""
			if c.keys {
				i.mu.Lock()
				i.jwks = endless.URL + "/jwks"
				i.mu.Unlock()
			} else {
				issuer = endless.URL
			}
			p := i.newProvider(t, &now, func(o *signin.Options) {
				if issuer != "" {
					o.Issuer = issuer
				}
			})
			token := i.sign(t, "one", i.newClaims("ann", now))
			var unbounded func() error
			if !c.keys {
				unbounded = func() error { _, err := oidc.NewProvider(t.Context(), issuer); return err }
			}
			testenv.CheckEndlessResponse(t, 96<<20, func() error { _, _, err := p.Person(t.Context(), token); return err }, unbounded)
		})
	}
}
