package brig

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Secret is a named value of a tenant. The value itself is written once and
// never told again.
type Secret struct {
	// Name is unique among the tenant's secrets; as ValidName.
	Name string
	// Hosts are those that the value may be sent to, as in EgressRule.Host. A
	// secret with hosts never enters a sandbox: what runs there has a
	// placeholder, for which the proxy puts the value into requests to these
	// hosts. One without hosts is handed to sandboxes as it is.
	Hosts []string
	// Places are the parts of a request in which a placeholder is replaced.
	// Default SecretHeader.
	Places []SecretPlace
	// Exclusive refuses requests to these hosts that carry credentials which
	// are not the placeholder.
	Exclusive bool
	// Plain lets the value go to these hosts in clear HTTP, for whoever is on
	// the way to read. Otherwise a request that would take it there is refused.
	Plain bool `json:",omitempty"`
	// Version counts its changes, from 1.
	Version          int
	Created, Updated time.Time
}

// SecretChange makes a secret, or changes the one of that name. What is nil stays
// as it is.
type SecretChange struct {
	Name string
	// Value is required of a new secret.
	Value []byte
	// Hosts and Places replace the lists. An empty list, which is not nil, removes
	// all.
	Hosts            []string
	Places           []SecretPlace
	Exclusive, Plain *bool
	// Reveal allows a change that takes all hosts from a secret: from then on
	// sandboxes see its value.
	Reveal bool
}

// Apply returns what the change makes of a secret.
func (c *SecretChange) Apply(s Secret) Secret {
	s.Name = c.Name
	if c.Hosts != nil {
		s.Hosts = c.Hosts
	}
	if c.Places != nil {
		s.Places = c.Places
	}
	if c.Exclusive != nil {
		s.Exclusive = *c.Exclusive
	}
	if c.Plain != nil {
		s.Plain = *c.Plain
	}
	// Without hosts these say nothing; only a change that names them is wrong.
	if len(s.Hosts) == 0 {
		if c.Places == nil {
			s.Places = nil
		}
		s.Exclusive, s.Plain = s.Exclusive && c.Exclusive != nil, s.Plain && c.Plain != nil
	} else if len(s.Places) == 0 {
		s.Places = []SecretPlace{SecretHeader}
	}
	return s
}

// SecretPlace is a part of an HTTP request.
type SecretPlace string

// The places in which a secret may be put.
const (
	SecretHeader SecretPlace = "header" // any header, credentials of basic authentication included
	SecretQuery  SecretPlace = "query"
	SecretBody   SecretPlace = "body"
)

// SealedSecret is a secret as it is kept: the value encrypted, under a key
// that the store does not know.
type SealedSecret struct {
	Secret
	Tenant string
	Key    string // names the key
	Sealed []byte
}

// SecretUse gives a sandbox a secret, or its placeholder, as a variable.
type SecretUse struct {
	// Name is the secret's.
	Name string
	// Env is the variable. Default the name in capitals, "_" for "-".
	Env string
}

// Variable is the variable's name.
func (u SecretUse) Variable() string {
	if u.Env != "" {
		return u.Env
	}
	return strings.ReplaceAll(strings.ToUpper(u.Name), "-", "_")
}

// The bounds of a secret.
const (
	MaxSecret      = 64 * int(KiB) // bytes of its value
	maxSecretHosts = 50
	// minBrokered keeps the values that answers are searched for from being
	// found everywhere.
	minBrokered = 8
)

// Check returns an error that names the first field that is wrong. The value
// is looked at and never told.
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
				WithHint("requests are looked at by name: give a name that resolves to it, and a rule that allows both")
		}
		if err := checkHost(fmt.Sprintf("hosts[%d]", i), strings.TrimPrefix(h, "*.")); err != nil {
			return err
		}
	}
	for i, p := range s.Places {
		if p != SecretHeader && p != SecretQuery && p != SecretBody {
			return InvalidField(fmt.Sprintf("places[%d]", i), "%q is no place", Clip(string(p), 100)).
				WithHint("use header, query or body")
		}
	}
	if len(s.Hosts) == 0 && (len(s.Places) > 0 || s.Exclusive || s.Plain) {
		return InvalidField("hosts", "places, exclusive and plain are for a secret with hosts").
			WithHint("name the hosts that may get it, or leave them out")
	}
	return s.checkValue(value)
}

func (s *Secret) checkValue(value []byte) error {
	switch {
	case len(value) == 0:
		return InvalidField("value", "it is empty").WithHint("give the secret's value; remove a secret with DELETE")
	case len(value) > MaxSecret:
		return InvalidField("value", "%d bytes are too many", len(value)).WithHint("give at most %s", FormatBytes(int64(MaxSecret)))
	case slices.Contains(value, 0):
		return InvalidField("value", "it has a NUL, which a variable cannot").WithHint("encode it, for example as base64")
	case len(s.Hosts) > 0 && len(value) < minBrokered:
		return InvalidField("value", "it is too short for a secret with hosts").
			WithHint("answers are searched for it: give at least %d bytes", minBrokered)
	case len(s.Hosts) > 0 && slices.ContainsFunc(value, func(b byte) bool { return b < ' ' && b != '\t' || b == 0x7f }):
		return InvalidField("value", "it has a control character, which a request cannot").
			WithHint("is there a line break at its end?")
	}
	return nil
}
