package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A Shield filters requests to ports of sandboxes, and the responses to them.
// Browsers send the cookies of a host to all of its ports, and programs send
// their key to any address that they are given. The code in a sandbox must not
// receive these credentials, and must not set cookies that this server reads.

// A Shield removes the credentials that Brig accepts from requests to
// sandboxes. It removes every header, cookie and query parameter that contains
// a key, a grant, a session, a sandbox token, a URL signature, or a token of
// the server's identity provider. It keeps all other headers, cookies and
// parameters.
type Shield struct {
	// Takes reports whether the server accepts a token of an identity provider,
	// according to the token's claims. If Takes is nil, the server accepts no
	// such token.
	Takes func(token string) bool
}

// TokenTaker is implemented by Keys that accept tokens of an identity provider.
type TokenTaker interface {
	TakesToken(token string) bool
}

// ShieldOf returns the shield of a server with these keys.
func ShieldOf(keys Keys) Shield {
	if ring, ok := keys.(*Keyring); ok {
		keys = ring.keys
	}
	if t, ok := keys.(TokenTaker); ok {
		return Shield{Takes: t.TakesToken}
	}
	return Shield{}
}

// Request removes Brig's credentials from a request to a sandbox.
func (s Shield) Request(r *http.Request) {
	h := r.Header
	s.filterList(h, "Cookie", ";", "; ", isOurCookie)
	// A client offers several protocols, and some programs in browsers put a
	// token into one of them.
	s.filterList(h, "Sec-Websocket-Protocol", ",", ", ", func(string) bool { return false })
	h.Del(CSRF)
	for name, values := range h {
		if slices.ContainsFunc(values, s.hasCredential) {
			delete(h, name)
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "X-Access-Token"} {
		if slices.ContainsFunc(h.Values(name), s.carriesKey) {
			h.Del(name)
		}
	}
	r.URL.RawQuery = s.query(r.URL.RawQuery)
}

// filterList removes parts from a header that is a list: those that contain a
// credential and those for which ours returns true.
func (s Shield) filterList(h http.Header, name, separator, joint string, ours func(string) bool) {
	lines := h.Values(name)
	if len(lines) == 0 {
		return
	}
	kept := []string{}
	for _, line := range lines {
		for part := range strings.SplitSeq(line, separator) {
			if part = strings.TrimSpace(part); part != "" && !ours(part) && !s.hasCredential(part) {
				kept = append(kept, part)
			}
		}
	}
	if h.Del(name); len(kept) > 0 {
		h.Set(name, strings.Join(kept, joint))
	}
}

// query removes the parameters that contain a credential and leaves the others
// unchanged.
func (s Shield) query(raw string) string {
	kept, rest, changed := strings.Builder{}, raw, false
	for rest != "" {
		pair, after := rest, ""
		if i := strings.IndexAny(rest, "&;"); i >= 0 {
			pair, after = rest[:i+1], rest[i+1:]
		}
		rest = after
		text := strings.TrimRight(pair, "&;")
		if plain, err := url.QueryUnescape(text); err == nil {
			text = plain
		}
		if s.hasCredential(text) || signedPair.MatchString(text) {
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

var (
	// credential matches the credentials that Brig issues: keys, grants,
	// sessions, keys in E2B's form, and sandbox tokens. A sandbox token begins
	// with the id of the key from which it was derived.
	credential = regexp.MustCompile(`brig_[A-Za-z0-9_.~-]{40}|e2b_[0-9A-Fa-f]{40}|k(?:[0-9a-f]{20}|[a-z2-7]{26})(?:~[A-Za-z0-9_-]+)?\.[0-9a-f]{64}`)
	// webToken matches a JSON Web Token.
	webToken = regexp.MustCompile(`eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`)
	// signedPair matches the signature of an E2B URL.
	signedPair = regexp.MustCompile(`^signature=v1_[A-Za-z0-9+/ ]{43}$`)
)

// hasCredential reports whether a text contains a credential that Brig accepts.
func (s Shield) hasCredential(text string) bool {
	return credential.MatchString(text) ||
		s.Takes != nil && strings.Contains(text, "eyJ") && slices.ContainsFunc(webToken.FindAllString(text, -1), s.Takes)
}

// ShieldResponse removes from a sandbox's response every header that would
// change this server's cookies in the browser.
func ShieldResponse(h http.Header) {
	if set := h.Values("Set-Cookie"); len(set) > 0 {
		h["Set-Cookie"] = slices.DeleteFunc(slices.Clone(set), isOurCookie)
		if len(h["Set-Cookie"]) == 0 {
			h.Del("Set-Cookie")
		}
	}
	// This header would clear the cookies of the whole domain, including the
	// console's.
	h.Del("Clear-Site-Data")
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

// carriesKey reports whether the value of a credential header contains a Brig
// key, also as the user or password of Basic authentication. Here the prefix of
// a key is sufficient, because even a truncated key must stay secret.
func (s Shield) carriesKey(value string) bool {
	scheme, rest, found := strings.Cut(strings.TrimSpace(value), " ")
	if !found {
		return isKey(scheme)
	}
	rest = strings.TrimSpace(rest)
	if strings.EqualFold(scheme, "Basic") {
		b, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			b, err = base64.RawStdEncoding.DecodeString(rest)
		}
		user, password, _ := strings.Cut(string(b), ":")
		return err == nil && (isKey(user) || isKey(password) || s.hasCredential(string(b)))
	}
	return isKey(rest)
}

// isKey reports whether a secret has the prefix of a Brig key, grant or
// session, or of an E2B key.
func isKey(s string) bool {
	return strings.HasPrefix(s, KeyPrefix) || strings.HasPrefix(s, "e2b_")
}
