package e2b

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
)

// allowPages allows pages of all sites to read the response, as E2B does. This
// is safe because the client sends its key or token in a header, and browsers
// do not add that header automatically. allowPages reports whether r was only a
// CORS preflight, which it has then answered.
func allowPages(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if !isPreflight(r) {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "*")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// fromSandbox reports whether the request comes from a page that a sandbox
// serves. The code in a sandbox is untrusted, and so are its pages.
func (e *env) fromSandbox(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil {
			return true
		}
		if _, ok, err := parseHost(u.Host, e.Domain); ok || err != nil {
			return true
		}
	}
	return false
}

func errForeignPage() error {
	return brig.Errorf(brig.PermissionDenied, "requests from pages that sandboxes serve are refused")
}
