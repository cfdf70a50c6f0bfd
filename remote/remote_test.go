package remote_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

func newClient(t *testing.T, o remote.Options, raw string, private bool) *remote.Client {
	t.Helper()
	var err error
	if o.Endpoint, err = brig.ParseEndpoint("endpoint", raw, private); err != nil {
		t.Fatal(err)
	}
	c, err := remote.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var get = remote.Request{Operation: "look", Method: http.MethodGet, Path: "/"}

// TestPinRejectsOtherKey checks that a pin restricts trust: a client rejects a valid
// certificate with another key before it sends a request. Without the pin, the
// client trusts the same service.
func TestPinRejectsOtherKey(t *testing.T) {
	served := 0
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer srv.Close()
	cert := srv.Certificate()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	right := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	wrong := sha256.Sum256([]byte("another key"))
	for _, c := range []struct {
		name, pin, authority string
		good                 bool
	}{
		{"no pin", "", authority, true},
		{"hexadecimal", hex.EncodeToString(right[:]), authority, true},
		{"base64", "sha256//" + base64.StdEncoding.EncodeToString(right[:]), authority, true},
		{"another key", hex.EncodeToString(wrong[:]), authority, false},
		{"a pin without the authority", hex.EncodeToString(right[:]), "", false},
		{"no authority", "", "", false},
	} {
		before := served
		a, err := newClient(t, remote.Options{Pin: c.pin, Authority: c.authority}, srv.URL, true).Do(t.Context(), get)
		if (err == nil) != c.good || c.good && a.Status != 200 {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.good {
			continue
		}
		if served != before || brig.KindOf(err) != brig.ConnectionFailed || brig.RetryOf(err) == brig.RetryContained {
			t.Errorf("%s: something was sent: %v", c.name, err)
		}
		if c.name == "another key" && !(errors.Is(err, remote.ErrPin) && strings.Contains(brig.AsError(err).Message, "pinned")) {
			t.Errorf("%s is told as %v", c.name, err)
		}
	}
	for _, bad := range []string{"x", "abcd", strings.Repeat("g", 64)} {
		if _, err := remote.ParsePin("pin_sha256", bad); brig.AsError(err).Field != "pin_sha256" {
			t.Errorf("the pin %q: %v", bad, err)
		}
	}
}

// TestNameResolvingToHostIsRejected checks that the client rejects a name that resolves to
// this host when it connects. The control: with allow_private, the address
// check permits the same name.
func TestNameResolvingToHostIsRejected(t *testing.T) {
	served := 0
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer srv.Close()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	port := netip.MustParseAddrPort(srv.Listener.Addr().String()).Port()
	named := fmt.Sprintf("https://localhost:%d", port)
	_, err := newClient(t, remote.Options{Authority: authority}, named, false).Do(t.Context(), get)
	if brig.KindOf(err) != brig.ConnectionFailed || served != 0 || !strings.Contains(brig.AsError(err).Hint, "allow_private") {
		t.Errorf("a public endpoint that is this machine: %v", err)
	}
	// The name is not in the certificate, but the address is checked first.
	if _, err := newClient(t, remote.Options{Authority: authority}, named, true).Do(t.Context(), get); err == nil || strings.Contains(err.Error(), "allow_private") {
		t.Errorf("with the permission: %v", err)
	}
	if _, err := newClient(t, remote.Options{Authority: authority}, fmt.Sprintf("https://127.0.0.1:%d", port), true).Do(t.Context(), get); err != nil || served != 1 {
		t.Errorf("with the permission, by its address: %v", err)
	}
}

// TestClientLimitsResponsesAndIgnoresRedirects checks that the client does not follow redirects, limits
// responses, and ignores proxy settings in the environment.
func TestClientLimitsResponsesAndIgnoresRedirects(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	t.Setenv("http_proxy", other.URL)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/long":
			_, _ = w.Write(make([]byte, 4096))
		case "/a b/é":
			fmt.Fprint(w, r.RequestURI)
		}
	}))
	defer srv.Close()
	var calls []brig.Call
	c := newClient(t, remote.Options{Max: 1024, Region: "here", OnCall: func(c brig.Call) { calls = append(calls, c) }}, srv.URL, true)
	a, err := c.Do(t.Context(), remote.Request{Operation: "away", Method: http.MethodPost, Path: "/away", Body: []byte("{}")})
	if err != nil || a.Status != http.StatusTemporaryRedirect || elsewhere != 0 {
		t.Errorf("a redirect: %+v, %v, %d requests elsewhere", a, err, elsewhere)
	}
	if _, err := c.Do(t.Context(), remote.Request{Operation: "long", Method: http.MethodGet, Path: "/long"}); brig.KindOf(err) != brig.Unavailable || brig.RetryOf(err) != brig.RetryContained {
		t.Errorf("a long answer: %v", err)
	}
	a, err = c.Do(t.Context(), remote.Request{Operation: "path", Method: http.MethodGet, Path: "/a%20b/%C3%A9", Query: url.Values{"q": {"1 2"}}})
	if err != nil || string(a.Body) != "/a%20b/%C3%A9?q=1+2" {
		t.Errorf("a path: %s, %v", a.Body, err)
	}
	if len(calls) != 3 || calls[0].Status != 307 || calls[0].Region != "here" || calls[0].Operation != "away" {
		t.Errorf("of the calls is told %+v", calls)
	}
}

func TestParseExceptionReadsLastTraceback(t *testing.T) {
	for _, c := range []struct {
		language        brig.Language
		text, name, msg string
	}{
		{brig.Python, "warning\nTraceback (most recent call last):\n  File \"x\"\nValueError: no good\n", "ValueError", "no good"},
		{brig.Python, "Traceback (most recent call last):\n  File \"x\"\nKeyboardInterrupt\n", "KeyboardInterrupt", ""},
		{brig.Python, "Traceback (most recent call last):\nA: 1\n\nDuring handling\n\nTraceback (most recent call last):\njson.decoder.JSONDecodeError: second\n", "JSONDecodeError", "second"},
		{brig.Python, "just a complaint: of the program\n", "", ""},
		{brig.Python, "", "", ""},
		{brig.JavaScript, "TypeError: no such thing\n    at main (main.js:1:2)\n", "TypeError", "no such thing"},
		{brig.JavaScript, "/w/main.js:1\nthrow new Error('x')\n^\n\nError: x\n    at Object.<anonymous>\n", "Error", "x"},
		{brig.JavaScript, "late\n", "", ""},
	} {
		got := remote.ParseException(c.language, c.text)
		if (got == nil) != (c.name == "") || got != nil && (got.Name != c.name || got.Message != c.msg || got.Traceback == "" || got.Code != "") {
			t.Errorf("%q is %+v, want %s: %s", c.text, got, c.name, c.msg)
		}
	}
}
