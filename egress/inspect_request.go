package egress

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// refusal is the error that a guest receives for a request that is not made.
type refusal struct {
	status int
	why    string // a short reason for the guest and the log
}

// check returns a refusal if a request is invalid under any rules, and
// otherwise all interpretations of the request.
func (n *inspection) check(r *http.Request) (asked []brig.Request, no *refusal) {
	switch {
	case r.Method == http.MethodConnect:
		return nil, &refusal{http.StatusMethodNotAllowed, "CONNECT is not served"}
	case r.URL.User != nil:
		return nil, &refusal{http.StatusBadRequest, "its target has a user"}
	case r.URL.Scheme != "" && r.URL.Scheme != n.scheme():
		return nil, &refusal{http.StatusMisdirectedRequest, "its target is not " + n.scheme()}
	case r.URL.Opaque != "" || strings.Contains(r.RequestURI, "#"):
		return nil, &refusal{http.StatusBadRequest, "its target is not a path"}
	case n.restrictsRequests() && !n.keepsHost(r.Header):
		return nil, &refusal{http.StatusBadRequest, "a field of its header names another host or path"}
	case !n.isHost(r.Host) || r.URL.Host != "" && !n.isHost(r.URL.Host):
		return nil, &refusal{http.StatusMisdirectedRequest, "it asks for another host than the connection is to"}
	}
	for name, values := range r.Header {
		if why := checkField(name, values); why != "" {
			return nil, &refusal{http.StatusBadRequest, why}
		}
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !n.isHost(hosts[0]) {
		// Only HTTP/2 keeps the field, in addition to :authority.
		return nil, &refusal{http.StatusMisdirectedRequest, "it asks for another host than the connection is to"}
	}
	return requests(r, n.restrictsRequests())
}

// checkField returns the reason why a header field is invalid. It repeats
// checks of the gate, which HTTP/2 requests bypass.
func checkField(name string, values []string) (why string) {
	if _, _, why := cutField(name + ":"); why != "" {
		return why
	}
	if name == "Content-Length" && (len(values) > 1 || len(values) == 1 && strings.Trim(values[0], "0123456789") != "") {
		return "its length is not one number"
	}
	return ""
}

func (n *inspection) scheme() string {
	if n.secure {
		return "https"
	}
	return "http"
}

// isHost reports whether an authority is that of the inspection: its name, with
// its port or without a port.
func (n *inspection) isHost(authority string) bool {
	name, port, ok := strings.Cut(authority, ":")
	return canonicalHost(name) == n.host && (!ok || port == strconv.Itoa(n.port))
}

// authorityName returns the host's name in requests, with the port unless it is
// the default.
func (n *inspection) authorityName() string {
	if n.secure && n.port == 443 || !n.secure && n.port == 80 {
		return n.host
	}
	return n.host + ":" + strconv.Itoa(n.port)
}

// requests returns all interpretations of a request. The first is the standard
// one. If no rule depends on requests, all interpretations are checked in the same
// way.
func requests(r *http.Request, restrictsRequests bool) ([]brig.Request, *refusal) {
	escaped := r.URL.EscapedPath()
	if escaped == "" {
		escaped = "/"
	}
	paths, why := readings(escaped)
	if why != "" {
		return nil, &refusal{http.StatusBadRequest, why}
	}
	methods := []string{r.Method, strings.ToUpper(r.Method)} // some servers also accept it in lower case
	for name, values := range r.Header {
		if !restrictsRequests {
			break
		}
		more, verbs, why := overrides(name, values)
		if why != "" {
			return nil, &refusal{http.StatusBadRequest, why}
		}
		paths, methods = append(paths, more...), append(methods, verbs...)
	}
	methods = append(methods, queryMethods(r.URL.RawQuery)...)
	slices.Sort(paths[1:])
	paths = slices.Compact(paths)
	slices.Sort(methods[1:])
	methods = slices.Compact(methods)
	if len(methods) > 5 || len(paths) > 50 {
		return nil, &refusal{http.StatusBadRequest, "it can be read in too many ways"}
	}
	var asked []brig.Request
	for _, m := range methods {
		for _, p := range paths {
			if q := (brig.Request{Method: m, Path: p}); !slices.Contains(asked, q) {
				asked = append(asked, q)
			}
		}
	}
	return asked, nil
}

// decide evaluates all interpretations of a request. If the results differ, it
// rejects the request.
func (n *inspection) decide(asked []brig.Request) (rule int, no *refusal) {
	verdict, rule := n.judge(n.host, n.port, asked[0])
	if verdict != brig.Allowed {
		return rule, &refusal{http.StatusForbidden, "no rule allows it"}
	}
	for _, q := range asked[1:] {
		if v, _ := n.judge(n.host, n.port, q); v != brig.Allowed {
			return rule, &refusal{http.StatusBadRequest, "its path or method can be read in ways that the rules do not all allow"}
		}
	}
	return rule, nil
}
