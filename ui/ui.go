// Package ui serves the pages for browsers: the console and the documentation.
//
// The console is a web page for administrators and tenants, and a regular client
// of the API. Its source is TypeScript, which make builds into dist. The
// documentation is a static site, which make docs-site builds into site.
package ui

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

//go:embed all:dist
var dist embed.FS

// Prefix is the path of the page.
const Prefix = "/console/"

// policy allows the page only resources of this server. It allows inline
// styles, because the terminal and the components create them at run time.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// IsConsoleRequest reports whether a request is for the console. This includes a browser's
// request for the root page.
func IsConsoleRequest(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, Prefix) || r.URL.Path == strings.TrimSuffix(Prefix, "/") ||
		r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Settings contains the settings that the page needs before a user has signed
// in.
type Settings struct {
	// SignIn is true if people can sign in through an identity provider.
	SignIn bool `json:"sign_in"`
}

// New returns the console. hosts are the server's names for browsers.
func New(log *slog.Logger, hosts []string, s Settings) http.Handler {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		built = dist // the directory is missing: the console was not built
	}
	return httpapi.Wrap(log, nil, httpapi.Guard(hosts, Prefix, serve(built, s)))
}

// serve serves a build, and the settings at settings.json.
func serve(built fs.FS, s Settings) http.Handler {
	files := http.FileServerFS(built)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !startPage(w, r, "the console") {
			return
		}
		name, below := strings.CutPrefix(r.URL.Path, Prefix)
		if !below {
			http.Redirect(w, r, Prefix, http.StatusFound)
			return
		}
		if _, err := fs.Stat(built, "index.html"); errors.Is(err, fs.ErrNotExist) {
			message(w, "The console is not in this build", "It is built with Node.js 20 or newer: <code>make console build</code>. "+
				"Everything that it does, the command line and the API do, too.")
			return
		}
		if name == "settings.json" {
			if err := httpapi.WriteJSON(w, http.StatusOK, s); err != nil {
				httpapi.Fail(w, r, err)
			}
			return
		}
		// A path that is not a file is a route of the page.
		if info, err := fs.Stat(built, path.Clean(name)); err != nil || info.IsDir() {
			if strings.HasPrefix(name, "assets/") {
				http.NotFound(w, r)
				return
			}
			name = ""
		}
		if strings.HasPrefix(name, "assets/") {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable") // their names contain their hashes
		}
		r2 := r.Clone(r.Context())
		r2.URL.Path = "/" + name
		files.ServeHTTP(w, r2)
	})
}

// startPage sets the security headers of a page. It rejects methods that do not
// read, and returns false then. what names the pages in the error.
func startPage(w http.ResponseWriter, r *http.Request, what string) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		httpapi.Fail(w, r, httpapi.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "%s is only read", what).WithHint("use GET")))
		return false
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	return true
}

// message responds that a page does not exist, with the reason as HTML.
func message(w http.ResponseWriter, title, reason string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	// The client may have disconnected.
	_, _ = fmt.Fprintf(w, "<!doctype html><title>Brig</title><h1>%s</h1>\n<p>%s</p>\n", title, reason)
}
