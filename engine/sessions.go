package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// maxSessions is the maximum number of concurrent sessions of one key or
// person.
var maxSessions = 100

// Users authenticates users through an identity provider. The engine calls its
// methods on each request, so that an operator's changes apply immediately.
type Users interface {
	// Person returns the person that a token of the provider authenticates, and
	// when the token expires.
	Person(ctx context.Context, token string) (*brig.Person, time.Time, error)
	// Actor returns the actor with a person's current rights, or
	// Unauthenticated.
	Actor(p *brig.Person) (brig.Actor, error)
	// TokenRule returns the rule for the tokens that the server accepts.
	TokenRule() brig.TokenRule
}

// AcceptsToken reports whether a token matches the server's rule for tokens of the identity
// provider.
func (d *identity) AcceptsToken(token string) bool {
	return d.Users != nil && d.Users.TokenRule().Accepts(token)
}

// PersonActor returns the actor for a token of the identity provider, as
// KeyActor does for a key.
func (d *identity) PersonActor(ctx context.Context, token string) (brig.Actor, error) {
	if d.Users == nil {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "this server does not accept tokens").WithHint("use a key")
	}
	p, expires, err := d.Users.Person(ctx, token)
	if err != nil {
		return brig.Actor{}, err
	}
	a, err := d.userActor(ctx, p)
	a.Expires = expires.UTC() // also limits the lifetime of credentials created with the token
	return a, brig.MarkGenuine(err)
}

// userActor returns the actor for an authenticated person.
func (d *identity) userActor(ctx context.Context, p *brig.Person) (brig.Actor, error) {
	if d.Users == nil {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "sign-in is disabled on this server").WithHint("use a key")
	}
	a, err := d.Users.Actor(p)
	if err != nil {
		return brig.Actor{}, err
	}
	a.Name, a.Person = p.Name(), p
	a.Founded, err = d.tenantCreationTime(ctx, a.Tenant)
	return a, err
}

// SessionActor returns the actor of a valid session. A session is invalid if it
// is too old, has been idle for too long, or if its key or person is no longer
// valid.
func (d *identity) SessionActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	s, err := d.Store.FindSession(ctx, hash)
	if err != nil {
		return brig.Actor{}, err
	}
	a, err := d.actorOfSession(ctx, s)
	return a, brig.MarkGenuine(err)
}

// actorOfSession returns the actor of a stored session, if the session is valid now.
func (d *identity) actorOfSession(ctx context.Context, s *brig.Session) (a brig.Actor, err error) {
	now := d.Clock.Now()
	d.mu.Lock()
	used := s.Used
	for _, at := range []time.Time{d.touchedSessions[s.ID], d.usedSessions[s.ID]} {
		if at.After(used) {
			used = at
		}
	}
	d.mu.Unlock()
	if d.Clock.HasPassed(s.Expires) || d.Clock.HasPassed(used.Add(d.SessionIdle)) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the session has ended").WithHint("sign in again")
	}
	a = s.Actor
	if a.Person != nil {
		a, err = d.userActor(ctx, a.Person)
	} else {
		a, err = d.KeyByID(ctx, a.Key)
	}
	if err != nil {
		return brig.Actor{}, err
	}
	if a.Tenant != s.Actor.Tenant {
		// The store lists the session for the other tenant.
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the session is from another tenant").WithHint("sign in again")
	}
	a.Session = s.ID
	if end := s.Actor.Expires; !end.IsZero() && (a.Expires.IsZero() || end.Before(a.Expires)) {
		a.Expires = end // credentials created in the session expire with the credential that started it
	}
	if now.Sub(used) >= min(touchInterval, d.SessionIdle/4) {
		d.mu.Lock()
		d.usedSessions[s.ID] = now.UTC()
		d.mu.Unlock()
	}
	return a, nil
}

// SessionCSRF returns the SHA-256 of the CSRF token of a session. It does not check whether the
// session is valid; SessionActor does.
func (d *identity) SessionCSRF(ctx context.Context, hash [32]byte) (token [32]byte, err error) {
	s, err := d.Store.FindSession(ctx, hash)
	if err != nil {
		return token, err
	}
	return s.CSRF, nil
}

// flushSessions writes the times at which sessions were last used.
func (d *identity) flushSessions(ctx context.Context) error {
	d.mu.Lock()
	used := d.usedSessions
	d.usedSessions = map[string]time.Time{}
	maps.Copy(d.touchedSessions, used)
	maps.DeleteFunc(d.touchedSessions, func(_ string, at time.Time) bool { return d.Clock.Now().Sub(at) > d.SessionIdle })
	d.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	return d.Store.Soon().TouchSessions(ctx, used)
}

// CreateSession implements brig.Service.
func (d *identity) CreateSession(ctx context.Context) (*brig.NewSession, error) {
	return do(ctx, d.gate, brig.OpCreateSession, "", func(v *call) (*brig.NewSession, error) {
		a := v.actor
		switch {
		case a.Grant != "":
			return nil, brig.Errorf(brig.PermissionDenied, "a grant cannot begin a session").WithHint("use a key")
		case a.Session != "":
			return nil, brig.Errorf(brig.PermissionDenied, "a session cannot begin another session").WithHint("use a key, or sign in")
		case a.Person == nil && a.Key == "":
			return nil, brig.Errorf(brig.FailedPrecondition, "a session stands for a key or a person, and the caller is neither").
				WithHint("ask a server, with a key")
		}
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		list, err := d.Store.Sessions(ctx, a.Tenant)
		if err != nil {
			return nil, err
		}
		active := 0
		for _, s := range list {
			if s.Actor.Same(a) {
				active++
			}
		}
		if active >= maxSessions {
			return nil, brig.Errorf(brig.FailedPrecondition, "there are %d sessions of the caller already", maxSessions).WithHint("end some first")
		}
		now := d.Clock.Now().UTC()
		secret := brig.SessionPrefix + strings.ToLower(rand.Text()+rand.Text())
		token := rand.Text()
		s := brig.Session{
			ID: "s" + strings.ToLower(rand.Text()), Hash: sha256.Sum256([]byte(secret)), CSRF: sha256.Sum256([]byte(token)), Actor: a,
			Created: now, Used: now, Expires: now.Add(d.SessionLife),
		}
		if end := a.Expires; !end.IsZero() && end.Before(s.Expires) {
			s.Expires = end // a session ends with the credential that it was created with
		}
		if err := d.Store.PutSession(ctx, s); err != nil {
			return nil, err
		}
		v.addDetail(brig.DetailSession, s.ID)
		s.Hash, s.CSRF = [32]byte{}, [32]byte{}
		return &brig.NewSession{Session: s, Secret: secret, CSRFToken: token}, nil
	})
}

// Sessions implements brig.Service.
func (d *identity) Sessions(ctx context.Context, tenant string) ([]*brig.Session, error) {
	return do(ctx, d.gate, brig.OpSessions, "", func(v *call) (_ []*brig.Session, err error) {
		if tenant, err = d.ofTenant(ctx, v, tenant); err != nil {
			return nil, err
		}
		if err := d.flushSessions(ctx); err != nil { // so that the times of use are current
			return nil, err
		}
		list, err := d.Store.Sessions(ctx, tenant)
		if err != nil {
			return nil, err
		}
		var out []*brig.Session
		for _, s := range list {
			if !d.Clock.HasPassed(s.Expires) && !d.Clock.HasPassed(s.Used.Add(d.SessionIdle)) && v.canSeeSession(s) {
				s.Hash, s.CSRF = [32]byte{}, [32]byte{}
				out = append(out, s)
			}
		}
		return out, nil
	})
}

// canSeeSession reports whether the caller may see a session. Callers see their own sessions, and
// admins also the sessions of others whose role is not higher. A caller with a grant sees no
// sessions.
func (v *call) canSeeSession(s *brig.Session) bool {
	switch {
	case v.actor.Grant != "":
		return false
	case v.actor.Same(s.Actor):
		return true
	case v.actor.Role >= brig.Operator:
		return true
	}
	return v.actor.Role >= brig.Admin && s.Actor.Tenant == v.actor.Tenant && s.Actor.Role <= v.actor.Role
}

// EndSession implements brig.Service.
func (d *identity) EndSession(ctx context.Context, id string) error {
	if id == "" { // a caller may always end its own session
		a := brig.ActorFrom(ctx)
		a.Scopes, a.Sandboxes = nil, nil
		ctx = brig.WithActor(ctx, a)
	}
	return d.doWithDetails(ctx, brig.OpEndSession, "", withDetail(brig.DetailSession, id), func(v *call) error {
		if id == "" {
			if id = v.actor.Session; id == "" {
				return brig.Errorf(brig.FailedPrecondition, "the caller does not use a session").WithHint("name one; list sessions to see their ids")
			}
			return d.Store.DeleteSession(ctx, v.actor.Tenant, id)
		}
		tenant := v.actor.Tenant
		if v.actor.Role >= brig.Operator {
			tenant = brig.AllTenants
		}
		list, err := d.Store.Sessions(ctx, tenant)
		if err != nil {
			return err
		}
		for _, s := range list {
			if s.ID == id && v.canSeeSession(s) {
				return d.Store.DeleteSession(ctx, s.Actor.Tenant, id)
			}
		}
		return brig.Errorf(brig.NotFound, "no session %q", truncate(id)).WithHint("list sessions to see their ids")
	})
}
