package egress

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// refusal is the error that a guest receives for a request that is not sent on.
type refusal struct {
	status int
	reason string // a short reason for the guest and the log
}

// maxTrailers limits the trailer fields that a request announces.
const maxTrailers = 100

// check returns a refusal if a request is invalid regardless of the rules, and otherwise its
// escaped paths and methods. The first of each is the standard one.
func (n *inspection) check(r *http.Request) (escaped, methods []string, refused *refusal) {
	switch {
	case r.Method == http.MethodConnect:
		return nil, nil, &refusal{http.StatusMethodNotAllowed, "CONNECT is not served"}
	case r.URL.User != nil:
		return nil, nil, &refusal{http.StatusBadRequest, "its target has a user"}
	case r.URL.Scheme != "" && r.URL.Scheme != n.scheme():
		return nil, nil, &refusal{http.StatusMisdirectedRequest, "its target is not " + n.scheme()}
	case r.URL.Opaque != "" || strings.Contains(r.RequestURI, "#"):
		return nil, nil, &refusal{http.StatusBadRequest, "its target is not a path"}
	case n.hasRequestRules() && !n.isHostKept(r.Header):
		return nil, nil, &refusal{http.StatusBadRequest, "a field of its header names another host or path"}
	case !n.isHost(r.Host) || r.URL.Host != "" && !n.isHost(r.URL.Host):
		return nil, nil, &refusal{http.StatusMisdirectedRequest, "it asks for another host than the connection is to"}
	}
	if len(r.Trailer) > maxTrailers {
		return nil, nil, &refusal{http.StatusRequestHeaderFieldsTooLarge, "it announces too many trailers"}
	}
	for name, values := range r.Header {
		if reason := checkField(name, values); reason != "" {
			return nil, nil, &refusal{http.StatusBadRequest, reason}
		}
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !n.isHost(hosts[0]) {
		// Only HTTP/2 keeps the field, in addition to :authority.
		return nil, nil, &refusal{http.StatusMisdirectedRequest, "it asks for another host than the connection is to"}
	}
	return readTargets(r, n.hasRequestRules())
}

// checkField returns the reason why a header field is invalid. It repeats
// checks of the gate, which HTTP/2 requests bypass.
func checkField(name string, values []string) (reason string) {
	if _, _, reason := cutField(name + ":"); reason != "" {
		return reason
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

// isHost reports whether an authority is the host of the inspection, with or without its port.
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

// readTargets returns the escaped paths and the methods that a request names. If no
// rule depends on requests, its header fields are not checked.
func readTargets(r *http.Request, hasRequestRules bool) (escaped, methods []string, refused *refusal) {
	escaped = []string{r.URL.EscapedPath()}
	if escaped[0] == "" {
		escaped[0] = "/"
	}
	if len(escaped[0]) > maxPath {
		return nil, nil, &refusal{http.StatusRequestURITooLong, whyPathTooLong}
	}
	methods = []string{r.Method}
	if upper := strings.ToUpper(r.Method); upper != r.Method {
		methods = append(methods, upper) // some servers also accept it in lower case
	}
	for name, values := range r.Header {
		if !hasRequestRules {
			break
		}
		more, verbs, reason := parseOverrides(name, values)
		escaped, methods = append(escaped, more...), append(methods, verbs...)
		if reason == "" && len(escaped) > maxPaths {
			reason = whyTooManyReadings
		}
		if reason != "" {
			return nil, nil, &refusal{http.StatusBadRequest, reason}
		}
	}
	methods = append(methods, parseQueryMethods(r.URL.RawQuery)...)
	others := slices.DeleteFunc(methods[1:], func(m string) bool { return m == r.Method })
	slices.Sort(others)
	methods = append(methods[:1], slices.Compact(others)...)
	if len(methods) > 5 {
		return nil, nil, &refusal{http.StatusBadRequest, whyTooManyReadings}
	}
	return escaped, methods, nil
}

// checkReadings decides about a request that names the given escaped paths and methods.
// The readings of the paths are charged before they are made, and released
// after the decision.
func (x *exchange) checkReadings(escaped, methods []string) *refusal {
	total := 0
	for _, p := range escaped {
		total += len(p)
	}
	cost := 2 * int64(min(maxReadings*total, maxReadingBytes))
	if refused := x.charge(cost); refused != nil {
		return refused
	}
	defer x.discharge(cost)
	var paths pathReadings
	for _, p := range escaped {
		if reason := paths.read(p); reason != "" {
			return &refusal{http.StatusBadRequest, reason}
		}
	}
	requests := make([]brig.Request, 0, len(paths.list)*len(methods))
	for _, p := range paths.list {
		for _, m := range methods {
			requests = append(requests, brig.Request{Method: m, Path: p})
		}
	}
	x.requested = requests[0]
	rule, refused := x.n.decide(requests)
	x.rule = rule
	return refused
}

// decide evaluates all interpretations of a request. If the results differ, it
// rejects the request.
func (n *inspection) decide(requests []brig.Request) (rule int, refused *refusal) {
	verdict, rule := n.judge(n.host, n.port, requests[0])
	if verdict != brig.Allowed {
		return rule, &refusal{http.StatusForbidden, "no rule allows it"}
	}
	for _, q := range requests[1:] {
		if v, _ := n.judge(n.host, n.port, q); v != brig.Allowed {
			return rule, &refusal{http.StatusBadRequest, "its path or method can be read in ways that the rules do not all allow"}
		}
	}
	return rule, nil
}
