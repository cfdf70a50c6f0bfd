package brig

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Secret is a named value of a tenant. The value is write-only: no call returns
// it.
type Secret struct {
	// Name is unique among the tenant's secrets; see ValidName.
	Name string
	// Hosts are the hosts that may receive the value, as in EgressRule.Host. A
	// secret with hosts never enters a sandbox: programs there have a
	// placeholder, and the proxy replaces it with the value in requests to these
	// hosts. A secret without hosts is passed to sandboxes directly.
	Hosts []string
	// Places are the parts of a request in which the proxy replaces a
	// placeholder. Default: SecretHeader.
	Places []SecretPlace
	// Exclusive rejects requests to these hosts with header fields or query
	// parameters that could contain credentials other than the placeholder.
	// Only fields and parameters that are known not to contain credentials are
	// allowed.
	Exclusive bool
	// Allow lists names that Exclusive allows in addition: header fields
	// (X-Tenant), query parameters with a question mark (?region), and users of
	// basic credentials whose password is the placeholder (user:me@example.com). A
	// trailing * matches any suffix.
	Allow []string `json:",omitempty"`
	// Plain allows the value in unencrypted HTTP requests to these hosts, where
	// it is readable on the network. Otherwise such a request is rejected.
	Plain bool `json:",omitempty"`
	// Version counts the changes, from 1.
	Version          int
	Created, Updated time.Time
}

// SecretChange creates a secret, or changes the existing one with its name. Nil
// fields keep their values.
type SecretChange struct {
	Name string
	// Value is required for a new secret, and for a change that allows the value to
	// reach more destinations (see Secret.Widens).
	Value []byte
	// Hosts, Places and Allow replace the lists. An empty list that is not nil
	// removes all entries.
	Hosts            []string
	Allow            []string
	Places           []SecretPlace
	Exclusive, Plain *bool
	// Reveal permits a change that removes all hosts from a secret. Sandboxes
	// then receive its value directly.
	Reveal bool
}

// Apply returns s with the change applied.
func (c *SecretChange) Apply(s Secret) Secret {
	s.Name = c.Name
	if c.Hosts != nil {
		s.Hosts = c.Hosts
	}
	if c.Places != nil {
		s.Places = c.Places
	}
	if c.Allow != nil {
		s.Allow = c.Allow
	}
	if c.Exclusive != nil {
		s.Exclusive = *c.Exclusive
	}
	if c.Plain != nil {
		s.Plain = *c.Plain
	}
	// The following fields have no effect for a secret without hosts, and only a
	// change that sets them is invalid.
	if len(s.Hosts) == 0 {
		if c.Places == nil {
			s.Places = nil
		}
		if c.Allow == nil {
			s.Allow = nil
		}
		s.Exclusive, s.Plain = s.Exclusive && c.Exclusive != nil, s.Plain && c.Plain != nil
	} else if len(s.Places) == 0 {
		s.Places = []SecretPlace{SecretHeader}
	}
	return s
}

// SecretPlace is a part of an HTTP request that may contain a secret.
type SecretPlace string

// Places for a secret in a request.
const (
	SecretHeader SecretPlace = "header" // any header, including the credentials of basic authentication
	SecretQuery  SecretPlace = "query"
	SecretBody   SecretPlace = "body"
)

// SealedSecret is the stored form of a secret: the value is encrypted with a
// key that the store does not have.
type SealedSecret struct {
	Secret
	Tenant string
	Key    string // name of the encryption key
	Sealed []byte
}

// SecretUse passes a secret, or its placeholder, to a sandbox as a variable.
type SecretUse struct {
	// Name is the name of the secret.
	Name string
	// Env is the name of the variable. Default: the secret's name in upper case,
	// with "_" for "-".
	Env string
}

// Variable returns the name of the variable.
func (u SecretUse) Variable() string {
	if u.Env != "" {
		return u.Env
	}
	return strings.ReplaceAll(strings.ToUpper(u.Name), "-", "_")
}

// Limits on a secret.
const (
	MaxSecret = 64 * int(KiB) // maximum bytes of a value
	// MaxBrokered is the maximum length of the value of a secret with hosts. The
	// proxy searches responses for the value, and buffers up to that many bytes
	// of each response.
	MaxBrokered    = 8 * int(KiB)
	maxSecretHosts = 50
	maxAllow       = 100 // entries
	// minBrokered is the minimum length of a brokered value, so that the search
	// does not match unrelated text.
	minBrokered = 8
)

// Check returns an error that names the first invalid field. The error never
// contains the value.
func (s *Secret) Check(value []byte) error {
	if !ValidName(s.Name) {
		return InvalidField("name", "%q is not a name", Clip(s.Name, 100)).
			WithHint("use 1 to 63 of a-z, 0-9 and -, not beginning with -")
	}
	if len(s.Hosts) > maxSecretHosts {
		return InvalidField("hosts", "%d hosts are too many", len(s.Hosts)).WithHint("give at most %d", maxSecretHosts)
	}
	for i, h := range s.Hosts {
		if isNetwork(h) {
			return InvalidField(fmt.Sprintf("hosts[%d]", i), "%q is an address", Clip(h, 100)).
				WithHint("the proxy matches hosts by name: use a name that resolves to the address, and rules that allow both")
		}
		if err := checkHost(fmt.Sprintf("hosts[%d]", i), strings.TrimPrefix(h, "*.")); err != nil {
			return err
		}
	}
	for i, p := range s.Places {
		if p != SecretHeader && p != SecretQuery && p != SecretBody {
			return InvalidField(fmt.Sprintf("places[%d]", i), "%q is not a part of a request", Clip(string(p), 100)).
				WithHint("use header, query or body")
		}
	}
	if len(s.Allow) > maxAllow {
		return InvalidField("allow", "%d entries are too many", len(s.Allow)).WithHint("give at most %d", maxAllow)
	}
	for i, a := range s.Allow {
		if !validAllow(a) {
			return InvalidField(fmt.Sprintf("allow[%d]", i), "%q is no header field, no query parameter and no user", Clip(a, 100)).
				WithHint("write X-Tenant for a field, ?region for a parameter, user:NAME for a user of basic credentials, and * at the end for any rest")
		}
	}
	if len(s.Hosts) == 0 && (len(s.Places) > 0 || len(s.Allow) > 0 || s.Exclusive || s.Plain) {
		return InvalidField("hosts", "places, exclusive, allow and plain are for a secret with hosts").
			WithHint("name the hosts that may get it, or leave them out")
	}
	return s.checkValue(value)
}

// validAllow reports whether an entry of Allow is valid.
func validAllow(entry string) bool {
	kind, rest := allowKind(entry)
	name := strings.TrimSuffix(rest, "*")
	forbidden := `"(),/:;<=>?@\{}&*`
	if kind == allowedUser {
		forbidden = ":*"
	}
	return rest != "" && len(name) <= 100 &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(forbidden, r) })
}

// The prefixes of entries of Allow. An entry for a header field has no prefix.
const (
	allowedParameter = "?"
	allowedUser      = "user:"
)

// allowKind splits an entry of Allow into its prefix and the name.
func allowKind(entry string) (kind, name string) {
	for _, kind := range []string{allowedParameter, allowedUser} {
		if name, ok := strings.CutPrefix(entry, kind); ok {
			return kind, name
		}
	}
	return "", entry
}

func (s *Secret) checkValue(value []byte) error {
	switch {
	case len(value) == 0:
		return InvalidField("value", "it is empty").WithHint("give a value, or remove the secret")
	case len(value) > MaxSecret:
		return InvalidField("value", "%d bytes are too many", len(value)).WithHint("give at most %s", FormatBytes(int64(MaxSecret)))
	case slices.Contains(value, 0):
		return InvalidField("value", "it has a NUL, which a variable cannot").WithHint("encode it, for example as base64")
	case len(s.Hosts) > 0 && len(value) < minBrokered:
		return InvalidField("value", "it is too short for a secret with hosts").
			WithHint("answers are searched for it: give at least %d bytes", minBrokered)
	case len(s.Hosts) > 0 && len(value) > MaxBrokered:
		return InvalidField("value", "%d bytes are too many for a secret with hosts", len(value)).
			WithHint("answers are searched for it: give at most %s", FormatBytes(int64(MaxBrokered)))
	case len(s.Hosts) > 0 && slices.ContainsFunc(value, func(b byte) bool { return b < ' ' && b != '\t' || b == 0x7f }):
		return InvalidField("value", "it has a control character, which a request cannot").
			WithHint("is there a line break at its end?")
	}
	return nil
}
