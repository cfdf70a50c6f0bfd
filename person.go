package brig

import "time"

// Person is who somebody is by the word of an identity provider. What they may
// do is not the provider's to say: the operator's mapping makes an Actor of
// them, and makes it anew whenever it is asked.
type Person struct {
	// Issuer and Subject name the person for ever.
	Issuer, Subject string
	// Email is what the provider has verified; empty otherwise.
	Email string `json:",omitempty"`
	// Claims are those on which tenants and roles hang.
	Claims map[string][]string `json:",omitempty"`
}

// Name is how people know the person.
func (p *Person) Name() string {
	if p.Email != "" {
		return p.Email
	}
	return p.Subject
}

// Session is a browser's: it stands for a key, or for a person who has signed
// in. Only the hash of its secret is stored.
type Session struct {
	ID   string   // names it; no secret
	Hash [32]byte // SHA-256 of the secret
	// Actor is who began it. What the session may do is what its key or its
	// person may now.
	Actor   Actor
	Created time.Time
	// Used is when it was last used, within a minute.
	Used time.Time
	// Expires is when it ends, used or not.
	Expires time.Time
}

// NewSession is a session that was just begun: nobody is ever told Secret
// again.
type NewSession struct {
	Session
	Secret string
}

// SessionPrefix begins every session's secret.
const SessionPrefix = "brig_session_"

// Same reports whether two actors are one: of the same key, or the same person.
func (a Actor) Same(b Actor) bool {
	if a.Person != nil && b.Person != nil {
		return a.Person.Issuer == b.Person.Issuer && a.Person.Subject == b.Person.Subject
	}
	return a.Person == nil && b.Person == nil && a.Key == b.Key && a.Key != ""
}
