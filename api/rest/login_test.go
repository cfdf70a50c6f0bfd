package rest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/signin"
)

// An address that starts too many logins must wait. Callbacks without a code
// and logins from other addresses are not affected.
func TestLoginRateLimit(t *testing.T) {
	var idp *httptest.Server
	idp = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": idp.URL, "authorization_endpoint": idp.URL + "/auth", "token_endpoint": idp.URL + "/token", "jwks_uri": idp.URL + "/jwks",
		})
	}))
	defer idp.Close()
	people, err := signin.New(signin.Options{
		Issuer: idp.URL, ClientID: "brig", URL: "https://brig.example.com", Seed: make([]byte, 32),
		Mapping: func() (*signin.Mapping, error) { return &signin.Mapping{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := rest.New(rest.Options{Service: &stub{}, Keys: keys{}, SignIn: people})
	get := func(addr, path string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil)
		r.RemoteAddr = addr
		h.ServeHTTP(w, r)
		return w
	}
	attack.Case(t, "API-09", "an address that begins logins and callbacks without end")
	for range 10_000 {
		if w := get("192.0.2.1:1", signin.CallbackPath+"?state=x"); w.Code != http.StatusUnauthorized {
			t.Fatalf("a callback without a code: %d %s", w.Code, w.Body)
		}
	}
	began, refused := 0, 0
	for range 400 {
		switch w := get("192.0.2.1:1", "/v1/auth/login"); {
		case w.Code == http.StatusFound:
			began++
		case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "":
			refused++
		default:
			t.Fatalf("a login: %d %s", w.Code, w.Body)
		}
	}
	if began < 100 || refused == 0 {
		t.Errorf("of 400 logins %d began and %d were refused", began, refused)
	}
	w := get("192.0.2.2:1", "/v1/auth/login")
	if w.Code != http.StatusFound {
		t.Errorf("another address: %d %s", w.Code, w.Body)
	}
	attack.RecordMutant("API-09", "the same from another address", "the address", w.Code == http.StatusFound)
}
