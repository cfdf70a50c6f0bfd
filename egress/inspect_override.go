package egress

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// Some servers take the effective request from a header field. Only proxies in front of such
// servers may set the field.

// parseOverrides returns the escaped paths and the methods with which a field may override those of the
// request.
func parseOverrides(name string, values []string) (paths, methods []string, reason string) {
	switch canonicalField(name) {
	case "x-original-url", "x-original-uri", "x-original-path", "x-original-request-uri",
		"x-rewrite-url", "x-rewrite-uri", "x-rewritten-url", "x-override-url", "x-override-uri",
		"x-forwarded-uri", "x-forwarded-url", "x-forwarded-path", "x-forwarded-request-uri", "x-replaced-path",
		"x-request-uri", "x-request-url", "x-request-path", "request-uri", "x-envoy-original-path", "x-envoy-original-url",
		"x-accel-redirect", "x-sendfile", "x-http-destinationurl", "x-proxy-url", "x-auth-request-redirect", "x-uri", "x-url", "x-path":
		paths, reason = parseOverridingPaths(values)
	case "destination", "x-amz-copy-source", "x-amz-rename-source", "x-goog-copy-source", "x-ms-copy-source", "x-ms-rename-source",
		"x-oss-copy-source", "x-cos-copy-source", "x-obs-copy-source", "x-bce-copy-source", "x-copy-from":
		// The destination of a copy or move: WebDAV uses a URL or a path, and
		// object stores may omit the leading slash.
		absolute := slices.Clone(values)
		for i, v := range absolute {
			if v = textproto.TrimString(v); !strings.HasPrefix(v, "/") && !strings.Contains(v, "://") {
				v = "/" + v
			}
			absolute[i] = v
		}
		paths, reason = parseOverridingPaths(absolute)
	case "x-http-method-override", "x-http-method", "x-method-override", "http-method-override",
		"x-rest-method", "x-tunneled-method", "x-original-method", "x-forwarded-method", "x-http-verb", "x-verb-override":
		for _, v := range values {
			for m := range strings.SplitSeq(v, ",") { // several may be in one line
				if m = strings.ToUpper(textproto.TrimString(m)); m != "" {
					methods = append(methods, m)
				}
			}
		}
	}
	return paths, methods, reason
}

// parseOverridingPaths returns the distinct escaped paths in the values of a field.
func parseOverridingPaths(values []string) (paths []string, reason string) {
	for _, v := range values {
		p, reason := parseOverridingPath(v)
		if reason != "" {
			return nil, reason
		}
		if len(paths) <= maxPaths && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	return paths, ""
}

// canonicalField returns the name as it is seen by servers that turn names into
// variables. Some replace every character other than a letter or digit by the
// same one, and PHP ends the name at a NUL.
func canonicalField(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// parseOverridingPath returns the escaped path in a field's value, which may be a
// URL.
func parseOverridingPath(v string) (path, reason string) {
	v, _, _ = strings.Cut(textproto.TrimString(v), "?")
	v, _, _ = strings.Cut(v, "#")
	if !strings.HasPrefix(v, "/") {
		u, err := url.Parse(v)
		if err != nil || u.Host == "" {
			return "", "a field of its header says a path that is none"
		}
		if v = u.EscapedPath(); v == "" {
			v = "/"
		}
	}
	return v, ""
}

// parseQueryMethods returns the methods with which a query may override that of the request.
func parseQueryMethods(query string) (methods []string) {
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		key, value, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		switch canonicalField(strings.TrimSpace(key)) {
		case "-method", "-httpmethod", "-http-method", "httpmethod", "http-method", "x-http-method-override", "x-http-method", "x-method-override":
			if m := strings.ToUpper(strings.TrimSpace(value)); m != "" {
				methods = append(methods, m)
			}
		}
	}
	return methods
}

// hasRequestRules reports whether the rules for the host depend on the
// request, so that a request must not contain an override.
func (n *inspection) hasRequestRules() bool {
	return n.isRestricted == nil || n.isRestricted(n.host, n.port)
}

// isHostKept reports whether no field overrides the connection's host, or adds a
// path prefix.
func (n *inspection) isHostKept(h http.Header) bool {
	for name, values := range h {
		for _, v := range values {
			switch canonicalField(name) {
			case "x-forwarded-host", "x-forwarded-server", "x-host", "x-original-host", "x-http-host-override", "x-host-override",
				"x-backend-host", "x-proxy-host", "x-envoy-original-host", "x-real-host", "proxy-host", "x-forwarded-domain":
				for part := range strings.SplitSeq(v, ",") {
					if !n.isHost(textproto.TrimString(part)) {
						return false
					}
				}
			case "forwarded":
				for part := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == ',' || r == ';' }) {
					key, value, _ := strings.Cut(part, "=")
					value = strings.Trim(value, "\" \t")
					if strings.EqualFold(textproto.TrimString(key), "host") && !n.isHost(value) {
						return false
					}
				}
			case "x-forwarded-prefix", "x-script-name", "x-scheme-prefix", "x-base-path", "x-forwarded-base-path", "x-envoy-original-prefix":
				if v = textproto.TrimString(v); v != "" && v != "/" {
					return false
				}
			}
		}
	}
	return true
}
