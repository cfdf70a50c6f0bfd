package signin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig/signin"
)

// TestDiscoveredHostsMustBePublic checks that a provider's documents cannot
// direct the server to hosts with private addresses. The controls are the
// issuer's own host, which an operator has configured, and the setting that
// allows other hosts.
func TestDiscoveredHostsMustBePublic(t *testing.T) {
	for _, allow := range []bool{false, true} {
		i, now := newIDP(t), time.Now()
		var requests atomic.Int32
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			http.Redirect(w, r, i.URL+"/jwks", http.StatusTemporaryRedirect)
		}))
		defer elsewhere.Close()
		i.mu.Lock()
		i.jwks = strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) + "/jwks"
		i.mu.Unlock()
		p := i.newProvider(t, &now, func(o *signin.Options) { o.AllowPrivate = allow })
		if _, _, err := p.Person(t.Context(), i.sign(t, "one", i.newClaims("ann", now))); err == nil {
			t.Error("a key set that is a redirect was accepted")
		}
		if reached := requests.Load() > 0; reached != allow {
			t.Errorf("allow_private %v: the server asked the other host: %v", allow, reached)
		}
	}
}
