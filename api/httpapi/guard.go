package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
)

// Guard protects every route against attacks through a browser. It rejects a
// request for a foreign host name (DNS rebinding, 421) and a request from
// another site's page (403). hosts are allowed in addition to the loopback
// names, with or without a port. Other sites may only navigate a browser to the
// page landing. If landing ends with an asterisk, it matches all pages below
// that path. These pages must be the same for every caller and must have no
// side effects.
func Guard(hosts []string, landing string, next http.Handler) http.Handler {
	allowed := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	for _, h := range hosts {
		if name := hostname(h); name != "" {
			allowed[name] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed[hostname(r.Host)] {
			fail(w, r, WithStatus(http.StatusMisdirectedRequest,
				brig.Errorf(brig.PermissionDenied, "the Host header has a name that is not this server's").
					WithHint("use localhost or the address that the server listens on, or add the name to the hosts it answers to")))
			return
		}
		if !sameSite(r) && !(isLanding(r.URL.Path, landing) && isNavigation(r)) {
			fail(w, r, brig.Errorf(brig.PermissionDenied, "requests from web pages of other sites are refused").
				WithHint("call the API from a program, not from a page"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameSite reports whether r comes from a program or from a page of this
// server.
func sameSite(r *http.Request) bool {
	for _, v := range r.Header.Values("Sec-Fetch-Site") {
		if v != "same-origin" && v != "none" && v != "" {
			return false
		}
	}
	for _, v := range r.Header.Values("Origin") {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	return true
}

// isLanding reports whether path matches landing, which may end with an
// asterisk.
func isLanding(path, landing string) bool {
	folder, all := strings.CutSuffix(landing, "*")
	if !all {
		return path == landing
	}
	return strings.HasPrefix(path, folder) || path == strings.TrimSuffix(folder, "/")
}

// isNavigation reports whether r is a navigation of a browser from another site
// to a page of this server. The other site can neither add content nor read the
// response.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && len(r.Header.Values("Origin")) == 0 &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// hostname returns the name in a Host header in lower case, without port and
// brackets. It is empty for an invalid header.
func hostname(host string) string {
	host = strings.ToLower(host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		return strings.TrimSuffix(name, ".")
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok {
			return ""
		}
		return inner
	}
	return strings.TrimSuffix(host, ".")
}

// Check verifies with the gate that r's actor may call one of ops on the named
// sandbox. It runs before r's body is read, so the body of a rejected request
// is never read. Check skips a request without a body, because the call itself
// checks it. If no operation is allowed, Check returns the error for the first
// one.
func Check(r *http.Request, service any, name string, ops ...brig.Op) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	actor := brig.ActorFrom(r.Context())
	may := ops[0]
	for _, op := range ops {
		if actor.Authorize(op) == nil {
			may = op
			break
		}
	}
	return CheckCall(r.Context(), service, name, may)
}

// CheckCall verifies with the gate that the actor of ctx may call op on the
// named sandbox. If the service is not a brig.Gate, as in tests, only the
// actor's role and scopes are checked.
func CheckCall(ctx context.Context, service any, name string, op brig.Op) error {
	if gate, ok := service.(brig.Gate); ok {
		return gate.Check(ctx, op, name)
	}
	return brig.ActorFrom(ctx).Authorize(op)
}
