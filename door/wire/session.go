package wire

import (
	"time"

	"github.com/brig-run/brig"
)

// Whoami is who is calling.
type Whoami struct {
	Name      string    `json:"name"`
	Tenant    string    `json:"tenant"`
	Role      string    `json:"role"`
	Scopes    []string  `json:"scopes,omitempty"`
	Sandboxes []string  `json:"sandboxes,omitempty" doc:"names of the only ones that a grant is good for"`
	Key       string    `json:"key_id,omitempty"`
	Grant     string    `json:"grant_id,omitempty"`
	Session   string    `json:"session_id,omitempty" doc:"the session by which a browser calls"`
	Issuer    string    `json:"issuer,omitempty" doc:"the identity provider of somebody who has signed in"`
	Subject   string    `json:"subject,omitempty"`
	Email     string    `json:"email,omitempty" doc:"as the identity provider has verified it"`
	Expires   time.Time `json:"expires,omitzero"`
	CSRF      string    `json:"csrf,omitempty" doc:"what a browser's page has to send as X-Brig-CSRF with all but GET"`
}

// Session is what can be known of a session.
type Session struct {
	ID      string    `json:"id"`
	Name    string    `json:"name" doc:"of the key or the person"`
	Tenant  string    `json:"tenant"`
	Role    string    `json:"role" doc:"when it was begun"`
	Key     string    `json:"key_id,omitempty" doc:"the key with which it ends"`
	Issuer  string    `json:"issuer,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Email   string    `json:"email,omitempty"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"last_used" doc:"to the minute"`
	Expires time.Time `json:"expires" doc:"at the latest"`
}

// NewSession is a session that was just begun. Its secret is in the cookie
// alone.
type NewSession struct {
	Session
	CSRF string `json:"csrf" doc:"what has to be sent as X-Brig-CSRF with all but GET"`
}

// Sessions lists sessions.
type Sessions struct {
	Sessions []Session `json:"sessions" nullable:"false"`
}

// FromActor writes who somebody is.
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

// Noun returns who it is.
func (w Whoami) Noun() *brig.Actor {
	role, _ := brig.ParseRole(w.Role) // one that only a newer server knows is nobody's
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

// FromSession writes a session.
func FromSession(s *brig.Session) Session {
	w := FromActor(s.Actor)
	return Session{
		ID: s.ID, Name: w.Name, Tenant: w.Tenant, Role: w.Role, Key: w.Key, Issuer: w.Issuer, Subject: w.Subject, Email: w.Email,
		Created: s.Created, Used: s.Used, Expires: s.Expires,
	}
}

// Noun returns the session.
func (s Session) Noun() *brig.Session {
	role, _ := brig.ParseRole(s.Role) // as above
	return &brig.Session{
		ID: s.ID, Created: s.Created, Used: s.Used, Expires: s.Expires,
		Actor: brig.Actor{Name: s.Name, Tenant: s.Tenant, Role: role, Key: s.Key, Person: person(s.Issuer, s.Subject, s.Email)},
	}
}

// FromSessions writes sessions.
func FromSessions(list []*brig.Session) Sessions {
	out := Sessions{Sessions: []Session{}}
	for _, s := range list {
		out.Sessions = append(out.Sessions, FromSession(s))
	}
	return out
}

// Noun returns the sessions.
func (s Sessions) Noun() (out []*brig.Session) {
	for _, x := range s.Sessions {
		out = append(out, x.Noun())
	}
	return out
}
