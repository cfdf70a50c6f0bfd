package e2b

import (
	"net/http"
	"strings"
)

// Matches reports whether r belongs to the E2B API. It is for a server that
// serves this API and the native one at the same address. The native API uses
// none of the paths, headers and hosts that Matches checks.
func (a *API) Matches(r *http.Request) bool {
	if r.Header.Get(headerID) != "" || r.Header.Get(headerKey) != "" {
		return true
	}
	if _, ok, err := parseHost(r.Host, a.Domain); ok || err != nil {
		return true
	}
	if domain := hostname(a.Domain); domain != "" {
		if name := hostname(r.Host); name == "api."+domain || name == "sandbox."+domain {
			return true
		}
	}
	if isPreflight(r) && requestsOwnHeader(r) {
		return true
	}
	return isControl(r.URL.Path) || isSigned(r) && r.Header.Get("Authorization") == ""
}

// requestsOwnHeader reports whether r is a CORS preflight for one of the E2B headers.
func requestsOwnHeader(r *http.Request) bool {
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		switch http.CanonicalHeaderKey(strings.TrimSpace(name)) {
		case headerID, headerKey, headerToken, headerTraffic:
			return true
		}
	}
	return false
}

// isControl reports whether a path belongs to the control plane.
func isControl(path string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "v2" || first == "v3" {
		first, _, _ = strings.Cut(rest, "/")
		return first == "sandboxes" || first == "templates"
	}
	switch first {
	case "sandboxes", "templates", "snapshots", "teams", "volumes", "volumecontent", "secrets", "events":
		return true
	}
	return path == "/health"
}
