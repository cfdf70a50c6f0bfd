package egress

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// foreign says why a request is refused by a host's exclusive secrets: it has
// credentials that are not one of their placeholders. Credentials in bodies
// are not seen.
func foreign(r *http.Request, bound []Secret) (why string) {
	if !slices.ContainsFunc(bound, func(s Secret) bool { return s.Exclusive }) {
		return ""
	}
	ours := func(text string) bool {
		return slices.ContainsFunc(bound, func(s Secret) bool { return strings.Contains(text, s.Placeholder) })
	}
	// A placeholder beside them makes nobody else's credentials ours: servers
	// take one word of several.
	alone := func(text string) bool {
		words := strings.FieldsFunc(text, isApart)
		return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !ours(w) })
	}
	for name, values := range r.Header {
		if !isCredential(name) {
			continue
		}
		for _, v := range values {
			good := strings.TrimSpace(v) == "" || alone(v)
			if _, pair, ok := basic(name, v); ok {
				good = ours(pair) && !hasControl(pair)
			} else if scheme, rest, ok := strings.Cut(strings.TrimSpace(v), " "); ok && name != "Cookie" && isToken(scheme) {
				good = alone(rest)
			}
			if !good {
				return "it has credentials of its own in " + name
			}
		}
	}
	for part := range strings.FieldsFuncSeq(r.URL.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		key, value, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		if value != "" && isCredentialKey(key) && !alone(value) {
			return "it has credentials of its own in its query"
		}
	}
	return ""
}

// isApart reports whether a character is between what is one credential and
// another.
func isApart(r rune) bool { return r <= ' ' || r == 0x7f || r == ',' || r == ';' }

// isCredential reports whether a field of a header says who one is.
func isCredential(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	switch name {
	case "authorization", "proxy-authorization", "cookie", "cookie2", "api-key", "apikey", "private-token", "x-amz-security-token":
		return true
	}
	return slices.ContainsFunc([]string{"-api-key", "-apikey", "-auth-token", "-access-token", "-authorization", "-auth-key", "-subscription-key"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

// isCredentialKey reports whether a key of a query says who one is.
func isCredentialKey(key string) bool {
	key = strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))
	switch key {
	case "key", "apikey", "token", "auth", "authtoken", "accesstoken", "accesskey", "authorization", "secret", "clientsecret",
		"password", "sig", "signature", "xamzsignature", "xamzcredential", "xamzsecuritytoken", "xgoogsignature", "subscriptionkey":
		return true
	}
	return false
}
