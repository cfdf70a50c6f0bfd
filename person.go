package brig

import "time"

// Person is a user that an identity provider authenticated. The operator's mapping,
// not the identity provider, assigns rights: it maps the person to an Actor on each
// request.
type Person struct {
	// Issuer and Subject identify the person permanently.
	Issuer, Subject string
	// Email is the address if the provider has verified it, otherwise empty.
	Email string `json:",omitempty"`
	// Claims are the claims that determine the tenant and the role.
	Claims map[string][]string `json:",omitempty"`
}

// Name returns the person's display name.
func (p *Person) Name() string {
	if p.Email != "" {
		return p.Email
	}
	return p.Subject
}

// Session is a browser session for a key or for a person who has signed in. The
// store has only the hash of its secret.
type Session struct {
	ID   string   // the public identifier
	Hash [32]byte // SHA-256 of the secret
	// CSRF is the SHA-256 of the token that modifying requests need in addition
	// to the secret. The token is random and not derived from the secret.
	CSRF [32]byte
	// Actor is the actor that started the session. The rights of the session are
	// the current rights of the key or the person.
	Actor   Actor
	Created time.Time
	// Used is the time of the last use, to the minute.
	Used time.Time
	// Expires is when the session ends, regardless of its use.
	Expires time.Time
}

// NewSession is a session that was just created. No other call returns Secret
// and CSRFToken, because the store has only their hashes.
type NewSession struct {
	Session
	Secret    string
	CSRFToken string
}

// SessionPrefix is the prefix of every session's secret.
const SessionPrefix = "brig_session_"

// Same reports whether two actors have the same key or the same person.
func (a Actor) Same(b Actor) bool {
	if a.Person != nil && b.Person != nil {
		return a.Person.Issuer == b.Person.Issuer && a.Person.Subject == b.Person.Subject
	}
	return a.Person == nil && b.Person == nil && a.Key == b.Key && a.Key != ""
}
