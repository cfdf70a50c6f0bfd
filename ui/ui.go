// Package ui is the console: a web page for administrators and tenants, and a
// client of the API like any other. Its source is TypeScript, which make
// builds into dist; this package serves what is there.
package ui

import (
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

//go:embed all:dist
var dist embed.FS

// Prefix is where the page is served.
const Prefix = "/console/"

// policy lets the page have what this server has, and nothing that is inline
// but styles: the terminal and the components make theirs as they go.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Wants reports whether a request is for the console: also one for the root
// that a browser makes to show it.
func Wants(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, Prefix) || r.URL.Path == strings.TrimSuffix(Prefix, "/") ||
		r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// New returns the console. Hosts are the names by which browsers may know the
// server.
func New(log *slog.Logger, hosts []string) http.Handler {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		built = dist // there is no such folder: nothing was built
	}
	return door.Wrap(log, nil, door.Guard(hosts, Prefix, serve(built)))
}

// serve serves a build.
func serve(built fs.FS) http.Handler {
	files := http.FileServerFS(built)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			door.Fail(w, r, door.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "the console is only read").WithHint("use GET")))
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		name, below := strings.CutPrefix(r.URL.Path, Prefix)
		if !below {
			http.Redirect(w, r, Prefix, http.StatusFound)
			return
		}
		if _, err := fs.Stat(built, "index.html"); errors.Is(err, fs.ErrNotExist) {
			unbuilt(w)
			return
		}
		// What is no file is a page of the page's own.
		if info, err := fs.Stat(built, path.Clean(name)); err != nil || info.IsDir() {
			if strings.HasPrefix(name, "assets/") {
				http.NotFound(w, r)
				return
			}
			name = ""
		}
		if strings.HasPrefix(name, "assets/") {
			h.Set("Cache-Control", "private, max-age=31536000, immutable") // their names have their hashes
		}
		r2 := r.Clone(r.Context())
		r2.URL.Path = "/" + name
		files.ServeHTTP(w, r2)
	})
}

// unbuilt says how to build the page.
func unbuilt(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(`<!doctype html><title>Brig</title><h1>The console is not in this build</h1>
<p>It is built with Node.js 20 or newer: <code>make console build</code>. Everything that it does, the
command line and the API do, too.</p>
`)) // the client may have gone
}
