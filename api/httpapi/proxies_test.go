package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/brig-run/brig/api/httpapi"
)

func TestOnlyTrustedProxiesSetClientAddress(t *testing.T) {
	trusted, err := httpapi.ParseProxies([]string{"10.0.0.0/8", "192.0.2.1", "fd00::/64"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, peer string
		headers    []string
		want       string
	}{
		{"no proxy", "198.51.100.9:5", nil, "198.51.100.9:5"},
		{"a stranger's word", "198.51.100.9:5", []string{"X-Forwarded-For", "203.0.113.7", "Forwarded", "for=203.0.113.7"}, "198.51.100.9:5"},
		{"a proxy", "10.1.2.3:5", []string{"X-Forwarded-For", "203.0.113.7"}, "203.0.113.7:0"},
		{"a proxy by its address", "192.0.2.1:5", []string{"X-Forwarded-For", "203.0.113.7"}, "203.0.113.7:0"},
		{"a proxy as an address of IPv6", "[::ffff:10.1.2.3]:5", []string{"X-Forwarded-For", "203.0.113.7"}, "203.0.113.7:0"},
		{"a proxy of IPv6", "[fd00::1]:5", []string{"X-Forwarded-For", "2001:db8::7"}, "[2001:db8::7]:0"},
		{"addresses set by the client", "10.1.2.3:5", []string{"X-Forwarded-For", "1.1.1.1, 203.0.113.7"}, "203.0.113.7:0"},
		{"in a line of its own", "10.1.2.3:5", []string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "203.0.113.7"}, "203.0.113.7:0"},
		{"two proxies", "10.1.2.3:5", []string{"X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.9.9.9"}, "203.0.113.7:0"},
		{"proxies alone", "10.1.2.3:5", []string{"X-Forwarded-For", "10.8.8.8, 10.9.9.9"}, "10.8.8.8:0"},
		{"a port", "10.1.2.3:5", []string{"X-Forwarded-For", "203.0.113.7:99"}, "203.0.113.7:0"},
		{"not an address", "10.1.2.3:5", []string{"X-Forwarded-For", "unknown"}, "10.1.2.3:5"},
		{"not an address before a proxy", "10.1.2.3:5", []string{"X-Forwarded-For", "203.0.113.7, unknown, 10.9.9.9"}, "10.9.9.9:0"},
		{"nothing", "10.1.2.3:5", nil, "10.1.2.3:5"},
		{"Forwarded", "10.1.2.3:5", []string{"Forwarded", `for=1.1.1.1, for="[2001:db8::7]:99";proto=https;by=x`}, "[2001:db8::7]:0"},
		{"Forwarded that a client wrote", "10.1.2.3:5", []string{"Forwarded", "for=1.1.1.1", "X-Forwarded-For", "203.0.113.7"}, "203.0.113.7:0"},
		{"Forwarded without for", "10.1.2.3:5", []string{"Forwarded", "proto=https"}, "10.1.2.3:5"},
	} {
		got, remaining := "", 0
		h := trusted.Behind(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, remaining = r.RemoteAddr, len(r.Header) }))
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "evil.test")
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Add(c.headers[i], c.headers[i+1])
		}
		if h.ServeHTTP(httptest.NewRecorder(), r); got != c.want || remaining != 0 {
			t.Errorf("%s: %s, want %s; %d headers are left", c.name, got, c.want, remaining)
		}
	}
	if _, err := httpapi.ParseProxies([]string{"example.com"}); err == nil {
		t.Error("a name is taken for a network")
	}
}

// Behind a reverse proxy, wrong keys of one client do not delay other clients,
// even if the other clients send wrong keys too.
func TestProxyClientsAreDelayedSeparately(t *testing.T) {
	trusted, err := httpapi.ParseProxies([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	try := func(p httpapi.Proxies, from, key string, h http.Handler) int {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("X-Forwarded-For", from)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		p.Behind(h).ServeHTTP(w, r)
		return w.Code
	}
	for name, p := range map[string]httpapi.Proxies{"with the proxy trusted": trusted, "without": nil} {
		h := httpapi.Auth(&countingKeys{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i := range 100 {
			try(p, "203.0.113.7", fmt.Sprintf("brig_%048d", i), h)
		}
		if got := try(p, "203.0.113.8", rightKey, h); got != http.StatusOK {
			t.Errorf("%s: another client's good key: %d", name, got)
		}
		if got := try(p, "203.0.113.7", rightKey, h); got != http.StatusOK {
			t.Errorf("%s: the same client's good key: %d", name, got)
		}
		want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusTooManyRequests}[p != nil]
		if got := try(p, "203.0.113.8", fmt.Sprintf("brig_8%047d", 1), h); got != want {
			t.Errorf("%s: another client's first wrong key: %d, want %d", name, got, want)
		}
	}
}
