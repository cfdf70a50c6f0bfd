package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

const key = "brig_0123456789012345678901234567890123456789"

// Who asks for a redirect to another server does not get the key sent there,
// nor what is in the request, whatever client of HTTP the caller has brought.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var asked []string
	ask := func(w http.ResponseWriter, r *http.Request) { asked = append(asked, r.Header.Get("Authorization")) }
	elsewhere := httptest.NewServer(http.HandlerFunc(ask))
	defer elsewhere.Close()
	from := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask(w, r)
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	plain, sealed := httptest.NewServer(from), httptest.NewTLSServer(from)
	defer plain.Close()
	defer sealed.Close()
	follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	for name, o := range map[string]client.Options{
		"the default":      {URL: plain.URL},
		"one that is bare": {URL: plain.URL, HTTP: &http.Client{}},
		"one that follows": {URL: plain.URL, HTTP: follows},
		"from https":       {URL: sealed.URL, HTTP: sealed.Client()},
	} {
		asked = nil
		o.Key = key
		c, err := client.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutSecret(t.Context(), brig.Secret{Name: "s"}, []byte("swordfish-swordfish")); brig.KindOf(err) != brig.ConnectionFailed {
			t.Errorf("%s: %v", name, err)
		}
		if len(asked) != 1 || asked[0] != "Bearer "+key {
			t.Errorf("%s: the servers are asked %d times, with %q", name, len(asked), asked)
		}
	}
	if follows.CheckRedirect == nil || follows.CheckRedirect(nil, nil) != nil {
		t.Error("the caller's own client was changed")
	}
}
