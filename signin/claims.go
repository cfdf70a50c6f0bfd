package signin

import (
	"encoding/json"
	"strings"
)

// claims are what a token says, or the provider when it is asked about
// somebody.
type claims map[string]json.RawMessage

// strings are the values of a claim: one, or those of a list. A name with dots
// that nothing is called by leads into objects (realm_access.roles).
func (c claims) strings(name string) []string {
	if name == "" {
		return nil
	}
	if name == "email" { // anybody can say so
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
		return inner.strings(rest)
	}
	var one *string
	if json.Unmarshal(raw, &one) == nil && one != nil {
		return []string{*one}
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) > maxClaim {
		return nil // too many to be told apart: nobody, rather than some
	}
	var out []string
	for _, x := range list {
		var text *string // null is none
		if json.Unmarshal(x, &text) == nil && text != nil && len(*text) <= maxSubject {
			out = append(out, *text)
		}
	}
	return out
}

// email is an address that the provider says it has verified, in lower case.
func (c claims) email() string {
	var address string
	if json.Unmarshal(c["email"], &address) != nil || len(address) > maxSubject {
		return ""
	}
	// Some say it as text.
	if v := string(c["email_verified"]); v != "true" && v != `"true"` {
		return ""
	}
	name, domain, ok := strings.Cut(address, "@")
	if !ok || name == "" || domain == "" || strings.ContainsAny(address, " \t\r\n,<>\"") || strings.Contains(domain, "@") {
		return ""
	}
	return strings.ToLower(address)
}

// fill adds what other has and c has not. An address and whether it was
// verified are one thing.
func (c claims) fill(other claims) {
	_, address := c["email"]
	for k, v := range other {
		if _, ok := c[k]; !ok && !(address && k == "email_verified") {
			c[k] = v
		}
	}
}
