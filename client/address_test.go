package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

const key = "brig_0123456789012345678901234567890123456789"

// TestClientRefusesPlainHTTP checks that the client does not send a key over a network in
// plain HTTP unless the options allow it.
func TestClientRefusesPlainHTTP(t *testing.T) {
	for url, plain := range map[string]bool{
		"http://127.0.0.1:2744": false, "http://127.8.9.10": false, "http://[::1]:2744": false,
		"http://[::ffff:127.0.0.1]:2744": false, "http://localhost:2744": false, "http://localhost/below": false,
		"https://brig.example": false, "https://192.0.2.1:2744": false, "HTTPS://0.0.0.0": false,

		"http://brig.example": true, "HTTP://brig.example": true, "http://192.0.2.1:2744": true, "http://10.0.0.1": true,
		"http://0.0.0.0:2744": true, "http://[::]:2744": true, "http://[fe80::1]": true, "http://[::1%25eth0]": true,
		"http://localhost.example": true, "http://127.0.0.1.example": true, "http://localhost.": true, "http://LOCALHOST": true,
		"http://127.1": true, "http://2130706433": true, "http://0x7f.1": true,
	} {
		for _, admitted := range []bool{false, true} {
			_, err := client.New(client.Options{URL: url, Key: key, InsecureHTTP: admitted})
			if refused := err != nil; refused != (plain && !admitted) {
				t.Errorf("%s, plain HTTP admitted: %t: %v", url, admitted, err)
			}
			if e := brig.AsError(err); e != nil && (e.Kind != brig.InvalidArgument || e.Field != "url" || !strings.Contains(e.Hint, "--insecure-http")) {
				t.Errorf("%s: %+v", url, e)
			}
		}
	}
}

// TestRedirectsAreNotFollowed checks that the target of a redirect receives
// neither the key nor the request, regardless of the caller's HTTP client.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var received []string
	ask := func(w http.ResponseWriter, r *http.Request) {
		received = append(received, r.Header.Get("Authorization"))
	}
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
		"the default":       {URL: plain.URL},
		"bare client":       {URL: plain.URL, HTTP: &http.Client{}},
		"follows redirects": {URL: plain.URL, HTTP: follows},
		"from https":        {URL: sealed.URL, HTTP: sealed.Client()},
	} {
		received = nil
		o.Key = key
		c, err := client.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutSecret(t.Context(), brig.SecretChange{Name: "s", Value: []byte("swordfish-swordfish")}); brig.KindOf(err) != brig.ConnectionFailed {
			t.Errorf("%s: %v", name, err)
		}
		if len(received) != 1 || received[0] != "Bearer "+key {
			t.Errorf("%s: servers received %d requests with the keys %q, want 1 request", name, len(received), received)
		}
	}
	if follows.CheckRedirect == nil || follows.CheckRedirect(nil, nil) != nil {
		t.Error("the caller's own client was changed")
	}
}
