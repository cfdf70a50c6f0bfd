package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/internal/attack"
)

// foreignPages are the headers that mark a request from another site's page.
// foreignHosts are host names of other servers.
var (
	foreignPages = [][2]string{
		{"Origin", "http://evil.test"}, {"Origin", "null"}, {"Origin", "file://"}, {"Origin", "http://localhost:1"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	}
	foreignHosts = []string{"evil.test", "evil.test:2744", "localhost.evil.test", "127.0.0.1.evil.test", "127.0.0.2", "[::1"}
)

// everyRoute calls f with each operation of the document and with two paths
// that do not exist.
func everyRoute(t *testing.T, f func(method, path string)) {
	t.Helper()
	_, srv := serve(t)
	_, text := doRequest(t, "GET", srv.URL+"/openapi.json", "")
	var d struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, item := range d.Paths {
		for method := range item {
			n++
			path = strings.NewReplacer("{name}", "box", "{pid}", "7", "{port}", "7", "{ref}", "host").Replace(path)
			f(strings.ToUpper(method), path)
		}
	}
	f("GET", "/nowhere")
	f("POST", "/v1/nowhere")
	if n < 50 {
		t.Errorf("only %d routes", n)
	}
}

// The guard runs before every route. It rejects a request with a foreign host
// name or from another site's page, and the Service does not receive the
// request.
func TestGuardProtectsEveryRoute(t *testing.T) {
	s, srv := serve(t)
	tried := func(id string, want int, method, path, header, value string) {
		resp, body := doRequest(t, method, srv.URL+path, "", header, value)
		got := s.lastArguments()
		ok := resp.StatusCode == want && got == nil
		if !ok {
			t.Errorf("%s %s with %s %q: %d %s, the service received %v", method, path, header, value, resp.StatusCode, body, got)
		}
		attack.RecordCase(id, fmt.Sprintf("%s %s, %s: %s", method, path, header, value), !ok)
	}
	everyRoute(t, func(method, path string) {
		for _, p := range foreignPages {
			tried("API-03", http.StatusForbidden, method, path, p[0], p[1])
		}
		for _, h := range foreignHosts {
			tried("API-04", http.StatusMisdirectedRequest, method, path, "Host", h)
		}
	})
}

// A page can send some kinds of bodies without a preflight request, but no JSON body. A body
// with another content type is not read.
func TestRoutesRejectForms(t *testing.T) {
	s, srv := serve(t)
	for _, seed := range seeds {
		if seed.kind != "application/json" {
			continue
		}
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
			resp, body := doRequest(t, "POST", srv.URL+seed.path, seed.body, "Content-Type", kind)
			ok := resp.StatusCode >= 400 && resp.StatusCode < 500 && s.lastArguments() == nil
			if !ok {
				t.Errorf("%s as %q: %d %s, the service received %v", seed.path, kind, resp.StatusCode, body, s.lastArguments())
			}
			attack.RecordCase("API-03", fmt.Sprintf("POST %.60s as %q", seed.path, kind), !ok)
		}
	}
	// Control: as JSON the request reaches the Service.
	doRequest(t, "POST", srv.URL+"/v1/sandboxes", `{"name":"web"}`)
	if s.lastArguments() == nil {
		t.Error("as JSON it is not heard of either")
	}
	attack.RecordMutant("API-03", "POST /v1/sandboxes", "the kind of a body", s.lastArguments() != nil)
}

// As the control of the guard, the same requests are accepted with the server's own host name
// or from its own pages.
func TestGuardAcceptsOwnRequests(t *testing.T) {
	s := &stub{ended: make(chan error, 8)}
	srv := httptest.NewServer(rest.New(rest.Options{Service: s, Keys: keys{}, Version: "v0", LimitRange: brig.DefaultLimitRange(), Hosts: []string{"evil.test"}}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	for _, c := range []struct {
		id, off string
		headers []string
	}{
		{"API-04", "the list of names", []string{"Host", "evil.test"}},
		{"API-03", "the page's origin", []string{"Origin", "http://" + host}},
		{"API-03", "the page's origin", []string{"Sec-Fetch-Site", "same-origin"}},
	} {
		resp, body := doRequest(t, "GET", srv.URL+"/v1/version", "", c.headers...)
		if resp.StatusCode != 200 {
			t.Errorf("%q: %d %s", c.headers, resp.StatusCode, body)
		}
		attack.RecordMutant(c.id, c.headers[0]+" as ours", c.off, resp.StatusCode == 200)
	}
}
