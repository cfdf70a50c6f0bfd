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

// maxSessions is how many sessions one key or person may have at once.
const maxSessions = 100

// People are those whom an identity provider vouches for. Both methods are
// asked each time, so that what the operator changes holds at once.
type People interface {
	// Person returns whom a token of the provider's proves, and until when.
	Person(ctx context.Context, token string) (*brig.Person, time.Time, error)
	// Actor is what a person may do now, or Unauthenticated.
	Actor(p *brig.Person) (brig.Actor, error)
}

// PersonActor says whom a token of the identity provider's proves, as KeyActor
// does of a key.
func (e *Engine) PersonActor(ctx context.Context, token string) (brig.Actor, error) {
	if e.People == nil {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "this server takes no tokens").WithHint("use a key")
	}
	p, expires, err := e.People.Person(ctx, token)
	if err != nil {
		return brig.Actor{}, err
	}
	a, err := e.person(ctx, p)
	a.Expires = expires.UTC() // and what is made with it
	return a, err
}

// person makes an actor of somebody who has been vouched for.
func (e *Engine) person(ctx context.Context, p *brig.Person) (brig.Actor, error) {
	if e.People == nil {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "nobody signs in to this server any more").WithHint("use a key")
	}
	a, err := e.People.Actor(p)
	if err != nil {
		return brig.Actor{}, err
	}
	a.Name, a.Person = p.Name(), p
	return a, e.mayExist(ctx, a.Tenant)
}

// SessionActor says whose a session is, while it is good: not left alone for
// too long, not too old, and its key or person good themselves.
func (e *Engine) SessionActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	s, err := e.Store.FindSession(ctx, hash)
	if err != nil {
		return brig.Actor{}, err
	}
	now := e.Now()
	e.mu.Lock()
	used := s.Used
	for _, at := range []time.Time{e.touchedSessions[s.ID], e.usedSessions[s.ID]} {
		if at.After(used) {
			used = at
		}
	}
	e.mu.Unlock()
	if !now.Before(s.Expires) || now.Sub(used) >= e.SessionIdle {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the session has ended").WithHint("sign in again")
	}
	a := s.Actor
	if a.Person != nil {
		a, err = e.person(ctx, a.Person)
	} else {
		a, err = e.KeyByID(ctx, a.Key)
	}
	if err != nil {
		return brig.Actor{}, err
	}
	if a.Tenant != s.Actor.Tenant {
		// It is on record, and listed, as one of the other's.
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the session was begun in another tenant").WithHint("sign in again")
	}
	a.Session = s.ID
	if now.Sub(used) >= min(touchEvery, e.SessionIdle/4) {
		e.mu.Lock()
		e.usedSessions[s.ID] = now.UTC()
		e.mu.Unlock()
	}
	return a, nil
}

// flushSessions writes when sessions were used.
func (e *Engine) flushSessions(ctx context.Context) error {
	e.mu.Lock()
	used := e.usedSessions
	e.usedSessions = map[string]time.Time{}
	maps.Copy(e.touchedSessions, used)
	maps.DeleteFunc(e.touchedSessions, func(_ string, at time.Time) bool { return e.Now().Sub(at) > e.SessionIdle })
	e.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	return e.Store.Soon().TouchSessions(ctx, used)
}

// CreateSession implements brig.Service.
func (e *Engine) CreateSession(ctx context.Context) (_ *brig.NewSession, err error) {
	v, err := e.enter(ctx, brig.OpCreateSession, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	a := v.actor
	switch {
	case a.Grant != "":
		return nil, brig.Errorf(brig.PermissionDenied, "a session is not begun with a grant").WithHint("use a key")
	case a.Session != "":
		return nil, brig.Errorf(brig.PermissionDenied, "a session is not begun with another").WithHint("use a key, or sign in")
	case a.Person == nil && a.Key == "":
		return nil, brig.Errorf(brig.FailedPrecondition, "a session stands for a key or a person, and the caller is neither").
			WithHint("ask a server, with a key")
	}
	list, err := e.Store.Sessions(ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	mine := 0
	for _, s := range list {
		if s.Actor.Same(a) {
			mine++
		}
	}
	if mine >= maxSessions {
		return nil, brig.Errorf(brig.FailedPrecondition, "there are %d sessions of the caller already", maxSessions).WithHint("end some first")
	}
	now := e.Now().UTC()
	secret := brig.SessionPrefix + strings.ToLower(rand.Text()+rand.Text())
	s := brig.Session{
		ID: "s" + strings.ToLower(rand.Text()), Hash: sha256.Sum256([]byte(secret)), Actor: a,
		Created: now, Used: now, Expires: now.Add(e.SessionLife),
	}
	if end := a.Expires; !end.IsZero() && end.Before(s.Expires) {
		s.Expires = end // no longer than what it was begun with
	}
	if err := e.Store.PutSession(ctx, s); err != nil {
		return nil, err
	}
	v.say(brig.DetailSession, s.ID)
	s.Hash = [32]byte{}
	return &brig.NewSession{Session: s, Secret: secret}, nil
}

// Sessions implements brig.Service.
func (e *Engine) Sessions(ctx context.Context, tenant string) (_ []*brig.Session, err error) {
	v, err := e.enter(ctx, brig.OpSessions, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if tenant, err = e.ofTenant(ctx, v, tenant); err != nil {
		return nil, err
	}
	if err := e.flushSessions(ctx); err != nil { // for when they were used
		return nil, err
	}
	list, err := e.Store.Sessions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var out []*brig.Session
	now := e.Now()
	for _, s := range list {
		if now.Before(s.Expires) && now.Sub(s.Used) < e.SessionIdle && v.ownsSession(s) {
			s.Hash = [32]byte{}
			out = append(out, s)
		}
	}
	return out, nil
}

// ownsSession reports whether the caller may know of a session: their own, and
// to admins those of others with no higher role. Whoever shows a grant has
// none.
func (v *visit) ownsSession(s *brig.Session) bool {
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
func (e *Engine) EndSession(ctx context.Context, id string) (err error) {
	if id == "" { // who is in may leave
		a := brig.ActorFrom(ctx)
		a.Scopes, a.Sandboxes = nil, nil
		ctx = brig.WithActor(ctx, a)
	}
	v, err := e.enter(ctx, brig.OpEndSession, "", func(v *visit) { v.say(brig.DetailSession, id) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	if id == "" {
		if id = v.actor.Session; id == "" {
			return brig.Errorf(brig.FailedPrecondition, "the caller is not here by a session").WithHint("name one; list sessions to see their ids")
		}
		return e.Store.DeleteSession(ctx, v.actor.Tenant, id)
	}
	tenant := v.actor.Tenant
	if v.actor.Role >= brig.Operator {
		tenant = brig.AllTenants
	}
	list, err := e.Store.Sessions(ctx, tenant)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.ID == id && v.ownsSession(s) {
			return e.Store.DeleteSession(ctx, s.Actor.Tenant, id)
		}
	}
	return brig.Errorf(brig.NotFound, "no session %q", clip(id)).WithHint("list sessions to see their ids")
}
