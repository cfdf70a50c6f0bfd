package ui

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// builtSite returns an archive of a site, with compressed and stored files.
func builtSite(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range []struct {
		name, text string
		method     uint16
	}{
		{"index.html", "<!doctype html>start" + strings.Repeat(" page", 1000), zip.Deflate},
		{"guides/user.html", "user", zip.Store},
		{"assets/a.js", "script", zip.Deflate},
		{"rules.yml", "groups:", zip.Deflate},
	} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: f.name, Method: f.method})
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestServeDocs(t *testing.T) {
	h := serveDocs(builtSite(t))
	for _, c := range []struct {
		method, path string
		status       int
		body, kind   string
	}{
		{"GET", "/docs/", 200, "start", "text/html; charset=utf-8"},
		{"GET", "/docs/index.html", 200, "start", "text/html; charset=utf-8"},
		{"GET", "/docs/guides/user.html", 200, "user", "text/html; charset=utf-8"},
		{"GET", "/docs/assets/a.js", 200, "script", "text/javascript; charset=utf-8"},
		{"GET", "/docs/rules.yml", 200, "groups:", "text/plain; charset=utf-8"},
		{"HEAD", "/docs/assets/a.js", 200, "", "text/javascript; charset=utf-8"},
		{"GET", "/docs", 302, "", ""},
		{"GET", "/docs/gone.html", 404, "no such page", "text/html; charset=utf-8"},
		{"GET", "/docs/guides/", 404, "no such page", "text/html; charset=utf-8"},
		{"GET", "/docs/../ui.go", 404, "no such page", "text/html; charset=utf-8"},
		{"POST", "/docs/", 405, "only read", ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || c.kind != "" && w.Header().Get("Content-Type") != c.kind {
			t.Errorf("%s %s: %d %q %v", c.method, c.path, w.Code, w.Body, w.Header())
		}
		if csp := w.Header().Get("Content-Security-Policy"); c.status == 200 && csp != policy {
			t.Errorf("%s %s: policy %q", c.method, c.path, csp)
		}
		if c.method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("HEAD %s: %q", c.path, w.Body)
		}
	}
	for name, archive := range map[string][]byte{"no archive": nil, "a broken archive": []byte("PK")} {
		w := httptest.NewRecorder()
		serveDocs(archive).ServeHTTP(w, httptest.NewRequest("GET", "/docs/guides/user.html", nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "make docs-site build") {
			t.Errorf("with %s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestDocsCompressed verifies that the gzip form of a page has the same content
// as the plain form, and that a browser need not transfer a page twice.
func TestDocsCompressed(t *testing.T) {
	h := serveDocs(builtSite(t))
	get := func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	plain, packed := get("/docs/"), get("/docs/", "Accept-Encoding", "br, gzip")
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > plain.Body.Len()/10 {
		t.Errorf("compressed: %d of %d bytes, %v", packed.Body.Len(), plain.Body.Len(), packed.Header())
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || string(b) != plain.Body.String() {
		t.Errorf("%v: %q", err, b)
	}
	if w := get("/docs/guides/user.html", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "" || w.Body.String() != "user" {
		t.Errorf("stored: %v %q", w.Header(), w.Body)
	}
	tag := plain.Header().Get("ETag")
	if w := get("/docs/", "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("the same page again: %d", w.Code)
	}
	if w := get("/docs/guides/user.html", "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("another page: %d", w.Code)
	}
}

func TestIsDocsRequest(t *testing.T) {
	for path, want := range map[string]bool{"/docs/": true, "/docs": true, "/docs/x": true, "/docsx": false, "/v1/docs/": false, "/": false} {
		if got := IsDocsRequest(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// TestLinksFromOtherSites checks that a page of another site may link to each page of
// the documentation, and, as a control, to no page of the console but its first.
func TestLinksFromOtherSites(t *testing.T) {
	docs, console := NewDocs(slog.New(slog.DiscardHandler), nil), New(slog.New(slog.DiscardHandler), nil, Settings{})
	for _, c := range []struct {
		path    string
		refused bool
	}{
		{"/docs/", false}, {"/docs", false}, {"/docs/guides/user/", false}, {"/docs/../console/keys", false},
		{"/console/", false}, {"/console/keys", true}, {"/console/settings.json", true},
	} {
		h := console
		if r := httptest.NewRequest("GET", c.path, nil); IsDocsRequest(r) {
			h = docs
		}
		r := httptest.NewRequest("GET", c.path, nil)
		r.Host = "localhost"
		for k, v := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"} {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); (w.Code == http.StatusForbidden) != c.refused {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
		r.Header.Set("Sec-Fetch-Mode", "cors") // a script of the other site
		w = httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Errorf("%s by a script: %d", c.path, w.Code)
		}
	}
}
