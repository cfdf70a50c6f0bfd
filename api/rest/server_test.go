package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig/api/rest"
)

// TestMetricLabelsAreBounded verifies that all route labels come from the route table,
// regardless of the content of requests.
func TestMetricLabelsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	o := rest.Options{Service: &stub{}, Keys: keys{}, Registry: reg}
	srv := httptest.NewServer(rest.New(o))
	defer srv.Close()
	rest.New(o) // a second API shares the metrics of the first API
	for i := range 50 {
		doRequest(t, "GET", fmt.Sprintf("%s/v1/sandboxes/box%d", srv.URL, i), "")
		doRequest(t, fmt.Sprintf("BREW%d", i), fmt.Sprintf("%s/path%d", srv.URL, i), "")
	}
	doRequest(t, "GET", srv.URL+"/healthz", "", "Host", "evil.test")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
		}
	}
	slices.Sort(labels)
	labels = slices.Compact(labels)
	want := []string{"method=GET", "method=other", "route=/v1/sandboxes/{name}", "route=none", "status=404", "status=405", "status=421"}
	if !slices.Equal(labels, want) && !slices.Equal(labels, slices.DeleteFunc(slices.Clone(want), func(s string) bool { return s == "status=405" })) {
		t.Errorf("the labels are %v, want %v", labels, want)
	}
	if resp, body := doRequest(t, "GET", srv.URL+"/metrics", ""); resp.StatusCode != 200 || !strings.Contains(body, "brig_http_requests_in_flight 1") {
		t.Errorf("/metrics: %d %s", resp.StatusCode, body)
	}
}

// TestNotReady verifies that the reason appears in the log but not in the response.
func TestNotReady(t *testing.T) {
	var log bytes.Buffer
	h := rest.New(rest.Options{
		Service: &stub{}, Keys: keys{}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Ready: func(context.Context) error { return errors.New("the disk at /data is full") },
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/readyz", nil))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "disk") || !strings.Contains(log.String(), "disk") {
		t.Errorf("%d %s, log %s", w.Code, w.Body, log.String())
	}
}

// TestForeignPagesAreRejected checks that the guard runs before every
// route.
func TestForeignPagesAreRejected(t *testing.T) {
	_, srv := serve(t)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/version", "/v1/sandboxes/box/logs", "/nowhere"} {
		if resp, _ := doRequest(t, "GET", srv.URL+path, "", "Host", "evil.test:2744"); resp.StatusCode != 421 {
			t.Errorf("%s under a strange name: %d", path, resp.StatusCode)
		}
		if resp, _ := doRequest(t, "GET", srv.URL+path, "", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != 403 {
			t.Errorf("%s from another site: %d", path, resp.StatusCode)
		}
	}
	for _, path := range []string{"/v1/run", "/v1/sandboxes/box/exec", "/v1/sandboxes/box/kill"} {
		if resp, _ := doRequest(t, "POST", srv.URL+path, `{"command":["echo"],"stream":true}`, "Origin", "http://evil.test"); resp.StatusCode != 403 {
			t.Errorf("%s from another site: %d", path, resp.StatusCode)
		}
	}
}
