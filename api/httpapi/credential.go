package httpapi

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// Patterns of the credentials that a Shield removes.
var (
	// credential matches the credentials that Brig issues: keys, grants,
	// sessions, keys in E2B's format, sandbox tokens, and signatures of E2B's
	// URLs. A sandbox token begins with the id of the key from which it was
	// derived.
	credential = regexp.MustCompile(`brig_(?:session_)?[A-Za-z0-9]{40}|brig_grant_[A-Za-z0-9_-]{40}|e2b_[0-9A-Fa-f]{40}|k(?:[0-9a-f]{20}|[a-z2-7]{26})(?:~[A-Za-z0-9_-]+)?\.[0-9a-f]{64}` +
		`|(?:^|[^A-Za-z0-9_-])signature["']?[=:]["']?v1_[A-Za-z0-9+/_ -]{43}`)
	// webToken matches a JSON Web Token.
	webToken = regexp.MustCompile(`eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`)
	// digits matches a sandbox token that belongs to no key.
	digits = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
)

// maxEscapes is the maximum number of levels of percent-encoding in a text.
// Each program in a chain may decode one level. The limit keeps the running
// time proportional to the length of the text.
const maxEscapes = 8

// hasCredential reports whether a text contains a credential that Brig accepts,
// in plain, percent-encoded or Base64 form. It also returns true for a text
// with more than maxEscapes levels of percent-encoding, which it does not
// decode completely.
func (s Shield) hasCredential(text string) bool {
	for level := 0; ; level++ {
		if s.hasPlainCredential(text) || slices.ContainsFunc(strings.FieldsFunc(text, isNotBase64), s.hasEncodedCredential) {
			return true
		}
		plain := unescape(text)
		if plain == text {
			return false
		}
		if level == maxEscapes {
			return true
		}
		text = plain
	}
}

// hasPlainCredential reports whether a text contains a credential in plain form.
func (s Shield) hasPlainCredential(text string) bool {
	return strings.ContainsAny(text, "_.") && credential.MatchString(text) ||
		s.Accepts != nil && strings.Contains(text, "eyJ") && slices.ContainsFunc(webToken.FindAllString(text, -1), s.Accepts) ||
		s.Own != nil && slices.ContainsFunc(digits.FindAllString(text, -1), s.Own)
}

// minEncoded is the length of the shortest credential in Base64.
const minEncoded = 56

// isNotBase64 reports whether a character is in neither of the Base64
// alphabets.
func isNotBase64(c rune) bool {
	switch {
	case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '+', c == '/', c == '_', c == '-':
		return false
	}
	return true
}

// hasEncodedCredential reports whether a text contains a credential in Base64, in either
// alphabet. Other characters of the alphabet may precede the encoded
// credential.
func (s Shield) hasEncodedCredential(text string) bool {
	if len(text) < minEncoded {
		return false
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	for i := range 4 {
		part := text[i:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1] // a single trailing character encodes no byte
		}
		b, err := base64.RawStdEncoding.DecodeString(part)
		if err == nil && s.hasPlainCredential(string(b)) {
			return true
		}
	}
	return false
}

// unescape decodes percent-encoding, and leaves invalid sequences unchanged.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if high, low := hexDigit(text[i+1]), hexDigit(text[i+2]); high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return string(out)
}

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	if c >= 'A' && c <= 'F' {
		c += 'a' - 'A'
	}
	return strings.IndexByte("0123456789abcdef", c)
}

// hasKey reports whether the value of a credential header contains a Brig
// key, either directly or as the user or password of Basic authentication. The
// prefix of a key is sufficient, because even a truncated key must stay secret.
func (s Shield) hasKey(value string) bool {
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
