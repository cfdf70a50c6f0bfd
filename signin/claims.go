package signin

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/exactjson"
)

// claims is the content of a token, or of the provider's userinfo response.
type claims map[string]json.RawMessage //nolint:recvcheck // only the decoder needs a pointer

// stringValues returns the values of a claim: a single string, or those in a
// list. A dotted name that is not itself a claim is a path into nested objects
// (realm_access.roles).
func (c claims) stringValues(name string) []string {
	if name == "" {
		return nil
	}
	if name == "email" { // only a verified address is used
		if e := c.email(); e != "" {
			return []string{e}
		}
		return nil
	}
	raw, ok := c[name]
	if !ok {
		first, rest, nested := strings.Cut(name, ".")
		var inner claims
		if !nested || json.Unmarshal(c[first], &inner) != nil {
			return nil
		}
		return inner.stringValues(rest)
	}
	var one *string
	if json.Unmarshal(raw, &one) == nil && one != nil {
		if !isPlain(*one) {
			return nil
		}
		return []string{*one}
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) > maxClaim {
		return nil // too many values, so all are ignored
	}
	var out []string
	for _, x := range list {
		var text *string // null is ignored
		if json.Unmarshal(x, &text) == nil && text != nil && len(*text) <= maxSubject && isPlain(*text) {
			out = append(out, *text)
		}
	}
	return out
}

// email returns an address that the provider has verified, in lower case.
func (c claims) email() string {
	var address string
	if json.Unmarshal(c["email"], &address) != nil || len(address) > maxSubject {
		return ""
	}
	// Some providers send a string.
	if v := string(c["email_verified"]); v != "true" && v != `"true"` {
		return ""
	}
	name, domain, ok := strings.Cut(address, "@")
	if !ok || name == "" || domain == "" || strings.ContainsAny(address, " \t\r\n,<>\"") || !isPlain(address) || strings.Contains(domain, "@") {
		return ""
	}
	return toASCIILower(address)
}

// toASCIILower converts only ASCII letters to lower case. Unicode's rules would
// merge two addresses: the Kelvin sign becomes a k.
func toASCIILower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// isPlain reports whether a value is displayed exactly as it is. It rejects
// control characters, direction marks and other invisible characters, and
// invalid UTF-8.
func isPlain(s string) bool {
	for _, c := range s {
		if c == utf8.RuneError || unicode.In(c, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return true
}

// claimNames are the claims that affect a decision, in addition to those of the
// mapping.
var claimNames = append([]string{"iss", "sub", "aud", "exp", "nbf", "iat", "nonce", "events", "email", "email_verified"}, partyClaims...)

// read decodes a document of claims. It rejects a document with a duplicate
// name, or with a name that differs from a claim name only in case.
func (c *claims) read(data []byte) error {
	if err := exactjson.Unmarshal(data, c); err != nil {
		return err
	}
	for name := range *c {
		for _, known := range claimNames {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("there is no claim %q, but %q", brig.Clip(name, 80), known)
			}
		}
	}
	return nil
}

// fill adds the claims of other that c lacks. It treats an email address and
// its verification as one claim.
func (c claims) fill(other claims) {
	_, address := c["email"]
	for k, v := range other {
		if _, ok := c[k]; !ok && !(address && k == "email_verified") {
			c[k] = v
		}
	}
}
