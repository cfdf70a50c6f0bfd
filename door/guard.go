package door

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
)

// Guard refuses, on every route, what a browser may have been talked into: a
// request for a host that is not ours (DNS rebinding, 421) and one that a page
// of another site makes (403). Hosts are those beside the loopback names, with
// or without a port. To landing, which expects nothing else, browsers may be
// sent from other sites, as pages of their own.
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
				brig.Errorf(brig.PermissionDenied, "this server does not go by the name in the Host header").
					WithHint("use localhost or the address that the server listens on, or add the name to the hosts it answers to")))
			return
		}
		if !sameSite(r) && !(r.URL.Path == landing && arrives(r)) {
			fail(w, r, brig.Errorf(brig.PermissionDenied, "requests from web pages of other sites are refused").
				WithHint("call the API from a program, not from a page"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameSite reports whether r comes from no browser, or from our own page.
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

// arrives reports whether r is a browser's that leaves another site for a page
// of ours: nothing of that site has any part in it, or sees what comes of it.
func arrives(r *http.Request) bool {
	return r.Method == http.MethodGet && len(r.Header.Values("Origin")) == 0 &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// hostname returns the name in a Host header: lower case, no port, no
// brackets; empty for what is none.
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
