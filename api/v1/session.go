package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// Whoami describes the caller.
type Whoami struct {
	Name      string    `json:"name"`
	Tenant    string    `json:"tenant"`
	Role      string    `json:"role" enum:"viewer,member,admin,operator"`
	Scopes    []string  `json:"scopes,omitempty"`
	Sandboxes []string  `json:"sandboxes,omitempty" doc:"names of the sandboxes to which the grant is restricted"`
	Key       string    `json:"key_id,omitempty"`
	Grant     string    `json:"grant_id,omitempty"`
	Session   string    `json:"session_id,omitempty" doc:"ID of the browser session"`
	Issuer    string    `json:"issuer,omitempty" doc:"identity provider of a person who signed in"`
	Subject   string    `json:"subject,omitempty"`
	Email     string    `json:"email,omitempty" doc:"email address that the identity provider verified"`
	Expires   time.Time `json:"expires,omitzero"`
	// Tokens describes the tokens that clients must not pass to sandboxes.
	Tokens *TokenRule `json:"tokens,omitempty" doc:"tokens of an identity provider that this server accepts"`
}

// TokenRule describes the tokens that a server accepts.
type TokenRule struct {
	Issuer    string   `json:"issuer"`
	Audiences []string `json:"audiences"`
}

// Session is the description of a session.
type Session struct {
	ID      string    `json:"id"`
	Name    string    `json:"name" doc:"name of the key or person"`
	Tenant  string    `json:"tenant"`
	Role    string    `json:"role" doc:"role at the start of the session" enum:"viewer,member,admin,operator"`
	Key     string    `json:"key_id,omitempty" doc:"ID of the key; the token ends with it"`
	Issuer  string    `json:"issuer,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Email   string    `json:"email,omitempty"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"last_used" doc:"accurate to a minute"`
	Expires time.Time `json:"expires" doc:"latest end of the session"`
}

// NewSession is a new session. Only the cookie contains its secret.
type NewSession struct {
	Session
	CSRF string `json:"csrf" doc:"value for the header X-Brig-CSRF, required for all methods except GET, and to upgrade a connection; returned only once"`
}

// Sessions is a list of sessions.
type Sessions struct {
	Sessions []Session `json:"sessions" nullable:"false"`
}

// FromActor converts a to its wire type.
func FromActor(a brig.Actor) Whoami {
	out := Whoami{
		Name: a.Name, Tenant: a.Tenant, Role: a.Role.String(), Scopes: a.Scopes, Sandboxes: a.Sandboxes,
		Key: a.Key, Grant: a.Grant, Session: a.Session, Expires: a.Expires,
	}
	if p := a.Person; p != nil {
		out.Issuer, out.Subject, out.Email = p.Issuer, p.Subject, p.Email
	}
	return out
}

// Domain converts w to its domain type.
func (w Whoami) Domain() *brig.Actor {
	role, _ := brig.ParseRole(w.Role) // a role that only newer servers support becomes brig.Nobody
	return &brig.Actor{
		Name: w.Name, Tenant: w.Tenant, Role: role, Scopes: w.Scopes, Sandboxes: w.Sandboxes,
		Key: w.Key, Grant: w.Grant, Session: w.Session, Expires: w.Expires, Person: person(w.Issuer, w.Subject, w.Email),
	}
}

func person(issuer, subject, email string) *brig.Person {
	if subject == "" {
		return nil
	}
	return &brig.Person{Issuer: issuer, Subject: subject, Email: email}
}

// FromSession converts s to its wire type.
func FromSession(s *brig.Session) Session {
	w := FromActor(s.Actor)
	return Session{
		ID: s.ID, Name: w.Name, Tenant: w.Tenant, Role: w.Role, Key: w.Key, Issuer: w.Issuer, Subject: w.Subject, Email: w.Email,
		Created: s.Created, Used: s.Used, Expires: s.Expires,
	}
}

// Domain converts s to its domain type.
func (s Session) Domain() *brig.Session {
	role, _ := brig.ParseRole(s.Role) // a role that only newer servers support becomes brig.Nobody
	return &brig.Session{
		ID: s.ID, Created: s.Created, Used: s.Used, Expires: s.Expires,
		Actor: brig.Actor{Name: s.Name, Tenant: s.Tenant, Role: role, Key: s.Key, Person: person(s.Issuer, s.Subject, s.Email)},
	}
}

// FromSessions converts list to its wire type.
func FromSessions(list []*brig.Session) Sessions {
	out := Sessions{Sessions: []Session{}}
	for _, s := range list {
		out.Sessions = append(out.Sessions, FromSession(s))
	}
	return out
}

// Domain converts s to its domain type.
func (s Sessions) Domain() (out []*brig.Session) {
	for _, x := range s.Sessions {
		out = append(out, x.Domain())
	}
	return out
}
