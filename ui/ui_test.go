package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func TestServe(t *testing.T) {
	built := fstest.MapFS{
		"index.html":     {Data: []byte("<!doctype html>page")},
		"assets/a-1.js":  {Data: []byte("script")},
		"icon.svg":       {Data: []byte("<svg/>")},
		"assets/sub/x.y": {Data: []byte("x")},
	}
	for _, c := range []struct {
		method, path string
		status       int
		body, cache  string
	}{
		{"GET", "/console/", 200, "page", ""},
		{"GET", "/console/sandboxes/a%2Fb", 200, "page", ""},
		{"GET", "/console/assets/a-1.js", 200, "script", "immutable"},
		{"HEAD", "/console/assets/a-1.js", 200, "", "immutable"},
		{"GET", "/console/assets/gone.js", 404, "", ""},
		{"GET", "/console/assets/", 404, "", ""},
		{"GET", "/console/icon.svg", 200, "svg", ""},
		{"GET", "/console/settings.json", 200, `{"sign_in":true}`, ""},
		{"GET", "/console/../secret", 200, "page", ""},
		{"GET", "/console", 302, "", ""},
		{"GET", "/", 302, "", ""},
		{"POST", "/console/", 405, "", ""},
	} {
		w := httptest.NewRecorder()
		serve(built, Settings{SignIn: true}).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || !strings.Contains(w.Header().Get("Cache-Control"), c.cache) {
			t.Errorf("%s %s: %d %q %v", c.method, c.path, w.Code, w.Body, w.Header())
		}
		if csp := w.Header().Get("Content-Security-Policy"); c.status == 200 && (!strings.Contains(csp, "script-src 'self';") || !strings.Contains(csp, "frame-ancestors 'none'")) {
			t.Errorf("%s %s: policy %q", c.method, c.path, csp)
		}
	}
	w := httptest.NewRecorder()
	serve(fstest.MapFS{".gitkeep": {}}, Settings{}).ServeHTTP(w, httptest.NewRequest("GET", "/console/", nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "make console") {
		t.Errorf("without a build: %d %s", w.Code, w.Body)
	}
}

func TestIsConsoleRequest(t *testing.T) {
	for path, want := range map[string]bool{"/console/": true, "/console": true, "/console/x": true, "/consoles": false, "/v1/run": false} {
		if got := IsConsoleRequest(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	if IsConsoleRequest(r) {
		t.Error("a program is sent to a page")
	}
	r.Header.Set("Accept", "text/html,*/*")
	if !IsConsoleRequest(r) {
		t.Error("a browser is not")
	}
}
