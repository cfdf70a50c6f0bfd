package brig

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// TokenRule selects the tokens of an identity provider that a server accepts: the
// issuer's tokens for one of the audiences. The zero value selects none.
type TokenRule struct {
	Issuer    string
	Audiences []string
}

// Accepts reports whether a token claims to match the rule. It checks neither the
// signature nor the time: a caller that must not forward such tokens must
// recognize expired ones, too.
func (t TokenRule) Accepts(token string) bool {
	parts := strings.Split(token, ".")
	if t.Issuer == "" || len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	// A map is used because claims are case-sensitive, but the fields of a struct
	// are not.
	var claims map[string]json.RawMessage
	var issuer, audience string
	if json.Unmarshal(payload, &claims) != nil || json.Unmarshal(claims["iss"], &issuer) != nil || issuer != t.Issuer {
		return false
	}
	audiences := []string{}
	if json.Unmarshal(claims["aud"], &audience) == nil {
		audiences = append(audiences, audience)
	} else if json.Unmarshal(claims["aud"], &audiences) != nil {
		return false
	}
	return slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(t.Audiences, a) })
}
