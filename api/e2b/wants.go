package e2b

import (
	"net/http"
	"strings"
)

// Wants reports whether r is in E2B's protocol, for a server that has this
// door and the native one at one address. The native API has none of these
// paths, headers and hosts.
func (d *Door) Wants(r *http.Request) bool {
	if r.Header.Get(headerID) != "" || r.Header.Get(headerKey) != "" {
		return true
	}
	if _, ok, err := parseHost(r.Host, d.Domain); ok || err != nil {
		return true
	}
	if domain := hostname(d.Domain); domain != "" {
		if name := hostname(r.Host); name == "api."+domain || name == "sandbox."+domain {
			return true
		}
	}
	if isPreflight(r) && asksForOurs(r) {
		return true
	}
	return isControl(r.URL.Path) || isSigned(r) && r.Header.Get("Authorization") == ""
}

// asksForOurs reports whether a browser asks if it may send our headers.
func asksForOurs(r *http.Request) bool {
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		switch http.CanonicalHeaderKey(strings.TrimSpace(name)) {
		case headerID, headerKey, headerToken, headerTraffic:
			return true
		}
	}
	return false
}

// isControl reports whether a path is one of the control plane.
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
