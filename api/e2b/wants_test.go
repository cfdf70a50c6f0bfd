package e2b_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/brig-run/brig/api/e2b"
)

func TestMatches(t *testing.T) {
	_, d, _ := serve(t)
	for _, c := range []struct {
		want    bool
		method  string
		target  string
		headers []string
	}{
		{true, "GET", "/v1/sandboxes", []string{"E2b-Sandbox-Id", "sb1"}},
		{true, "GET", "/metrics", []string{"E2b-Sandbox-Id", "sb1"}},
		{true, "GET", "/healthz", []string{"X-API-KEY", "e2b_00"}},
		{true, "GET", "/v1/run", []string{"Host", "8080-sb1.box.test:8443"}},
		{true, "GET", "/v1/run", []string{"Host", "8080-sb1.anything.example"}},
		{true, "GET", "/v1/run", []string{"Host", "0-sb1.box.test"}},
		{true, "GET", "/", []string{"Host", "api.box.test"}},
		{true, "GET", "/sandboxes", nil},
		{true, "GET", "/v2/sandboxes", nil},
		{true, "POST", "/v2/sandboxes/sb1/connect", nil},
		{true, "POST", "/v3/templates", nil},
		{true, "GET", "/teams", []string{"Authorization", "Bearer x"}},
		{true, "GET", "/health", nil},
		{true, "GET", "/files?path=a&signature=v1_x", nil},
		{true, "OPTIONS", "/process.Process/Start", []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type, e2b-sandbox-id"}},
		{false, "GET", "/files?path=a&signature=v1_x", []string{"Authorization", "Bearer brig_x"}},
		{false, "GET", "/files?path=a", nil},
		{false, "GET", "/v1/sandboxes", []string{"Authorization", "Bearer brig_x"}},
		{false, "GET", "/v1/sandboxes", []string{"Host", "box.test"}},
		{false, "GET", "/v1/sandboxes", []string{"Host", "8080-web.other.example"}},
		{false, "GET", "/v1/run", []string{"Host", "49983-sb1"}},
		{false, "GET", "/healthz", nil},
		{false, "GET", "/readyz", nil},
		{false, "GET", "/metrics", nil},
		{false, "GET", "/openapi.json", nil},
		{false, "GET", "/sandboxesx", nil},
		{false, "GET", "/v2/other", nil},
		{false, "OPTIONS", "/v1/run", []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization"}},
	} {
		r := httptest.NewRequest(c.method, c.target, nil)
		r.Host = "127.0.0.1:3000"
		for i := 0; i+1 < len(c.headers); i += 2 {
			if c.headers[i] == "Host" {
				r.Host = c.headers[i+1]
			}
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		if got := d.Matches(r); got != c.want {
			t.Errorf("%s %s %v: %t", c.method, c.target, c.headers, got)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		host, domain, id string
		port             int
		ok, bad          bool
	}{
		{"8080-sb1.box.test", "box.test", "sb1", 8080, true, false},
		{"8080-i1abc.box.test:443", "box.test:8443", "i1abc", 8080, true, false},
		{"8080-i1abc.other.test", "box.test", "", 0, false, false},
		{"8080-sb1.other.test", "box.test", "sb1", 8080, true, false},
		{"8080-sb1.", "", "", 0, false, false},
		{"8080-SB1.X.Y.", "", "sb1", 8080, true, false},
		{"8080-sb.x", "", "", 0, false, false},
		{"8080-sb1-old.x", "", "", 0, false, false},
		{"8080-sb1-old.box.test", "box.test", "sb1", 8080, true, false},
		{"8080-sb1-old-er.box.test", "box.test", "", 0, false, true},
		{"65536-sb1.box.test", "box.test", "sb1", 0, false, true},
		{"99999999999999999999-sb1.box.test", "box.test", "sb1", 0, false, true},
		{"-sb1.box.test", "box.test", "", 0, false, false},
		{"api.box.test", "box.test", "", 0, false, false},
		{"[::1]:80", "box.test", "", 0, false, false},
		{"", "", "", 0, false, false},
	} {
		id, port, ok, err := e2b.HostTarget(c.host, c.domain)
		if ok != c.ok || (err != nil) != c.bad || ok && (id != c.id || port != c.port) {
			t.Errorf("%q under %q: %s %d %t %v", c.host, c.domain, id, port, ok, err)
		}
	}
}

// Without a seed, the API creates tokens that cannot be guessed. Without a data
// plane, the API responds with an error.
func TestNewWithoutOptions(t *testing.T) {
	s, _, srv := serve(t, func(o *e2b.Options) { o.Seed, o.Envd, o.Domain = nil, nil, "" })
	first := createSandbox(t, srv.URL, `{"templateID":"base"}`)
	_, _, other := serve(t, func(o *e2b.Options) { o.Seed = nil })
	if second := createSandbox(t, other.URL, `{"templateID":"base"}`); first == second {
		t.Error("two doors without a seed make the same tokens")
	}
	if resp, _ := doRequest(t, http.MethodGet, srv.URL+"/health", "", "Host", "49983-sb1.x"); resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("no data plane: %d", resp.StatusCode)
	}
	if spec := s.lastSpec(); spec.Template != "base" {
		t.Errorf("%+v", spec)
	}
}
