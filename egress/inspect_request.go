package egress

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// refusal is what a guest is told of a request that is not made.
type refusal struct {
	status int
	why    string // in a few words, for the guest and for the record
}

// check says what is wrong with a request, whatever the rules are, and else
// what it may be to servers.
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
	case !n.isHost(r.Host) || r.URL.Host != "" && !n.isHost(r.URL.Host):
		return nil, &refusal{http.StatusMisdirectedRequest, "it asks for another host than the connection is to"}
	}
	for name, values := range r.Header {
		if why := checkField(name, values); why != "" {
			return nil, &refusal{http.StatusBadRequest, why}
		}
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !n.isHost(hosts[0]) {
		// Only HTTP/2 leaves it there, beside its :authority.
		return nil, &refusal{http.StatusMisdirectedRequest, "it asks for another host than the connection is to"}
	}
	return requests(r)
}

// checkField says what is wrong with a field. HTTP/2 has no gate that has seen it.
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

// isHost reports whether an authority is that of the inspection: its name,
// with its port or none.
func (n *inspection) isHost(authority string) bool {
	name, port, ok := strings.Cut(authority, ":")
	return canonicalHost(name) == n.host && (!ok || port == strconv.Itoa(n.port))
}

// authority is how the host is named in requests to it.
func (n *inspection) authorityName() string {
	if n.secure && n.port == 443 || !n.secure && n.port == 80 {
		return n.host
	}
	return n.host + ":" + strconv.Itoa(n.port)
}

// requests returns what a request may be to one server or another; the first
// is what it is by the standard.
func requests(r *http.Request) ([]brig.Request, *refusal) {
	escaped := r.URL.EscapedPath()
	if escaped == "" {
		escaped = "/"
	}
	paths, why := readings(escaped)
	if why != "" {
		return nil, &refusal{http.StatusBadRequest, why}
	}
	// To some servers the header says which path was "really" asked for, and which
	// method; a method in the query, or in lower case, is one to others.
	methods := []string{r.Method, strings.ToUpper(r.Method)}
	for name, values := range r.Header {
		switch strings.ReplaceAll(strings.ToLower(name), "_", "-") { // alike to those that make variables of them
		case "x-original-url", "x-rewrite-url":
			for _, v := range values {
				p, _, _ := strings.Cut(v, "?")
				more, why := readings(p)
				if why != "" {
					return nil, &refusal{http.StatusBadRequest, why}
				}
				paths = append(paths, more...)
			}
		case "x-http-method-override", "x-http-method", "x-method-override":
			for _, v := range values {
				methods = append(methods, strings.ToUpper(textproto.TrimString(v)))
			}
		}
	}
	for key, values := range r.URL.Query() {
		if strings.EqualFold(key, "_method") || strings.EqualFold(key, "_httpmethod") {
			for _, v := range values {
				if m := strings.ToUpper(strings.TrimSpace(v)); m != "" {
					methods = append(methods, m)
				}
			}
		}
	}
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

// decide judges all that a request may be. What would be judged differently is
// refused.
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
