package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Shield filters requests to ports of sandboxes, and the responses to them.
// Browsers send the cookies of a host to all of its ports, and programs send
// their key to any address that they are given. The code in a sandbox must not
// receive these credentials, and must not set cookies that this server reads.

// A Shield removes the credentials that Brig accepts from requests to
// sandboxes: keys, grants, sessions, sandbox tokens, URL signatures, and tokens
// of the server's identity provider. It recognizes them by their value, in any
// header, cookie, query parameter or part of the path, and removes only the
// value. It keeps everything else unchanged.
type Shield struct {
	// Accepts reports whether the server accepts a token of an identity provider,
	// according to the token's claims. If Accepts is nil, the server accepts no
	// such token.
	Accepts func(token string) bool
	// Own reports whether a string of 64 hexadecimal digits is a sandbox token
	// of the server. Own is needed only on a server whose tokens belong to no
	// key, because all other tokens have a recognizable format. If Own is nil,
	// the server has no such tokens.
	Own func(token string) bool
}

// TokenTaker is implemented by Keys that accept tokens of an identity provider.
type TokenTaker interface {
	AcceptsToken(token string) bool
}

// ShieldOf returns the shield of a server with these keys.
func ShieldOf(keys Keys) Shield {
	if ring, ok := keys.(*Keyring); ok {
		keys = ring.keys
	}
	if t, ok := keys.(TokenTaker); ok {
		return Shield{Accepts: t.AcceptsToken}
	}
	return Shield{}
}

// lists maps the headers whose values are lists to the separator of the list.
// Clients and proxies may join several credentials in one header line, which
// can then contain both Brig's credential and the program's.
var lists = map[string]string{
	"Cookie": ";", "Sec-Websocket-Protocol": ",",
	"Authorization": ",", "Proxy-Authorization": ",", "X-Api-Key": ",", "X-Access-Token": ",",
}

// removed replaces a part of a path that contains a credential.
const removed = "removed"

// RemoveCredentials removes Brig's credentials from a request to a sandbox.
func (s Shield) RemoveCredentials(r *http.Request) {
	r.Header.Del(CSRF)
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name, lines := range h {
			if len(lines) == 0 {
				continue // a trailer whose value follows the body
			}
			if h[name] = s.removeFromLines(http.CanonicalHeaderKey(name), lines); len(h[name]) == 0 {
				delete(h, name)
			}
		}
	}
	u := r.URL
	u.User = nil
	if s.hasCredential(u.Opaque) {
		u.Opaque = ""
	}
	s.replaceInPath(u)
	u.RawQuery = s.removeFromQuery(u.RawQuery)
}

// removeFromLines removes the values with a credential from the lines of a header.
func (s Shield) removeFromLines(name string, lines []string) (kept []string) {
	for _, line := range lines {
		if !s.isOurs(name, line) {
			kept = append(kept, line)
			continue
		}
		separator := lists[name]
		if separator == "" {
			continue
		}
		parts := slices.DeleteFunc(strings.Split(line, separator), func(part string) bool {
			return strings.TrimSpace(part) == "" || s.isOurs(name, part)
		})
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		if line = strings.Join(parts, separator+" "); line != "" && !s.isOurs(name, line) {
			kept = append(kept, line)
		}
	}
	return kept
}

// isOurs reports whether a line of a header, or a part of it, contains a
// credential.
func (s Shield) isOurs(name, text string) bool {
	switch name {
	case "Cookie":
		if slices.ContainsFunc(strings.Split(text, ";"), isOurCookie) {
			return true
		}
	case "Authorization", "Proxy-Authorization", "X-Api-Key", "X-Access-Token":
		if slices.ContainsFunc(strings.Split(text, ","), s.hasKey) {
			return true
		}
	}
	return s.hasCredential(text)
}

// replaceInPath replaces the parts of a path that contain a credential.
func (s Shield) replaceInPath(u *url.URL) {
	parts := strings.Split(u.EscapedPath(), "/")
	changed := false
	for i, part := range parts {
		if s.hasCredential(part) {
			parts[i], changed = removed, true
		}
	}
	if !changed {
		return
	}
	u.RawPath = strings.Join(parts, "/")
	if plain, err := url.PathUnescape(u.RawPath); err == nil {
		u.Path = plain
	} else {
		u.Path, u.RawPath = u.RawPath, ""
	}
}

// removeFromQuery removes the parameters that contain a credential and leaves the others
// unchanged.
func (s Shield) removeFromQuery(raw string) string {
	kept, rest, changed := strings.Builder{}, raw, false
	for rest != "" {
		pair, after := rest, ""
		if i := strings.IndexAny(rest, "&;"); i >= 0 {
			pair, after = rest[:i+1], rest[i+1:]
		}
		rest = after
		if s.hasCredential(strings.TrimRight(pair, "&;")) {
			changed = true
			continue
		}
		kept.WriteString(pair)
	}
	if !changed {
		return raw
	}
	return strings.TrimRight(kept.String(), "&;")
}

// ShieldResponse removes from a sandbox's response every header that would
// change this server's cookies in the browser. It limits the sandbox's own
// cookies to the host of its port, because a browser would send a cookie for
// the whole domain to every other sandbox.
func ShieldResponse(h http.Header) {
	if set := h.Values("Set-Cookie"); len(set) > 0 {
		set = slices.DeleteFunc(slices.Clone(set), isOurCookie)
		for i, cookie := range set {
			set[i] = withoutDomain(cookie)
		}
		if h["Set-Cookie"] = set; len(set) == 0 {
			h.Del("Set-Cookie")
		}
	}
	// This header would clear the cookies of the whole domain, including the
	// console's.
	h.Del("Clear-Site-Data")
}

// withoutDomain removes the attribute Domain from a cookie.
func withoutDomain(cookie string) string {
	parts := strings.Split(cookie, ";")
	kept := slices.DeleteFunc(parts[1:], func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return strings.EqualFold(strings.TrimSpace(name), "domain")
	})
	return strings.Join(append(parts[:1], kept...), ";")
}

// isOurCookie reports whether a cookie pair sets a cookie of this server, in
// any spelling of the name.
func isOurCookie(pair string) bool {
	// Browsers send a cookie without a name as its value alone, and a server
	// may parse that as another cookie's name and value.
	pair = strings.TrimLeft(pair, "= \t\"")
	name, _, _ := strings.Cut(pair, "=")
	name, _, _ = strings.Cut(name, ";")
	name = strings.ToLower(strings.Trim(name, " \t\""))
	for _, prefix := range []string{"__host-http-", "__host-", "__http-", "__secure-"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name == sessionCookie || name == loginCookie
}
