package egress

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// If rules depend on requests, a field or query that overrides the request is
// checked with it, and one that names another host is refused.
func TestRequestOverridesAreChecked(t *testing.T) {
	type field struct{ name, value string }
	refused := []field{}
	for _, name := range []string{
		"X-Original-URL", "X-Original-URI", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Forwarded-Path", "X-Envoy-Original-Path", "X_ORIGINAL_URI", "X.Original.URL", "X~Rewrite-Url",
	} {
		refused = append(refused, field{name, "/admin"}, field{name, "/v1/../admin"}, field{name, "https://api.test/admin"}, field{name, "admin"})
	}
	for _, name := range []string{"X-Forwarded-Host", "X-Host", "X-Original-Host", "X-HTTP-Host-Override", "x_forwarded_host"} {
		refused = append(refused, field{name, "evil.test"}, field{name, "api.test, evil.test"})
	}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Forwarded-Method", "X-Original-Method"} {
		refused = append(refused, field{name, "DELETE"}, field{name, "get, delete"})
	}
	refused = append(refused, field{"Forwarded", "for=1.2.3.4;host=evil.test"}, field{"Forwarded", `proto=https, Host="evil.test"`},
		field{"X-Forwarded-Prefix", "/admin"}, field{"X-Script-Name", "/admin"}, field{"X.HTTP.Method.Override", "DELETE"},
		field{"Destination", "/admin"}, field{"Destination", "https://api.test/v1/../admin"}, field{"X-Amz-Copy-Source", "admin/x"},
		field{"X-Amz-Copy-Source", "/admin/x?versionId=1"}, field{"X-Ms-Copy-Source", "https://api.test/admin"})
	allowed := []field{
		{"X-Original-URI", "/v1/x?y=/admin"}, {"X-Forwarded-Uri", "https://api.test/v1/x"}, {"X-Forwarded-Host", "api.test"}, {"X-Forwarded-Prefix", "/"},
		{"Forwarded", "for=1.2.3.4;host=api.test"}, {"X-Forwarded-For", "1.2.3.4"}, {"X-HTTP-Method-Override", "GET"},
		{"Destination", "https://api.test/v1/y"}, {"X-Amz-Copy-Source", "v1/y?versionId=1"},
	}
	var arrived atomic.Int64 // an upstream counts a request before it answers
	l := newLab(t, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	narrow := []brig.EgressRule{{Host: labHost, Methods: []string{"GET"}, Paths: []string{"/v1/*"}}}
	ask := func(path string, f field) bool {
		t.Helper()
		r := l.request("GET", path, nil)
		if f.name != "" {
			r.Header[f.name] = []string{f.value}
		}
		client := l.client(false)
		defer client.CloseIdleConnections()
		before := arrived.Load()
		res, _ := l.do(client, r)
		return arrived.Load() > before && res.StatusCode == http.StatusOK
	}
	l.rules.Rules = narrow
	for _, f := range refused {
		attack.Case(t, "NET-11", "override: "+f.name+": "+f.value)
		if ask("/v1/x", f) {
			t.Errorf("%s: %s is let through", f.name, f.value)
		}
	}
	for _, q := range []string{"_method=DELETE", "a;_method=DELETE", "x=1&_httpMethod=delete", "%5Fmethod=delete", "$httpMethod=DELETE", ".method=DELETE", "+_method=DELETE", "%20_method%00x=DELETE", "x&%5bmethod=DELETE"} {
		if ask("/v1/x?"+q, field{}) {
			t.Errorf("%s is let through", q)
		}
	}
	for _, f := range allowed {
		if !ask("/v1/x", f) {
			t.Errorf("%s: %s is refused", f.name, f.value)
		}
	}
	// The control: if no rule depends on requests, overrides are allowed.
	l.rules.Rules = []brig.EgressRule{{Host: labHost}}
	l.isRestricted = func(string, int) bool { return false }
	for _, f := range refused {
		if !ask("/v1/x", f) {
			t.Errorf("the control: %s: %s is refused", f.name, f.value)
		}
	}
}
