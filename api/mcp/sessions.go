package mcp

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// maxCalls limits the concurrent calls of one session.
const maxCalls = 32

// sessions are the open sessions of the API, with their owners and running
// calls. The library ends idle sessions.
type sessions struct {
	maxSessions int // maximum number of sessions per tenant; one holder may have half of them
	wait        sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	all    map[string]*session
	closed bool
}

// session is one open session. The mutex of its sessions guards the fields.
type session struct {
	owner, tenant string
	holder        string // the key or person of the owner
	serverSession *mcp.ServerSession
	used          time.Time
	calls         map[*func(error)]bool
	// uses are the sandboxes that its calls have used. They stay in use until
	// the session or the credential ends.
	uses       *brig.SessionUses
	credential *credential // nil after its end
}

// credential is the newest credential of a session: among the credentials of
// its requests, the one that expires last.
type credential struct {
	expires time.Time // zero means never
	done    func()
}

// isNewer reports whether a credential with the given expiry replaces c.
func (c *credential) isNewer(expires time.Time) bool {
	return c == nil || !c.expires.IsZero() && (expires.IsZero() || expires.After(c.expires))
}

func newSessions(limit int) *sessions {
	return &sessions{maxSessions: limit, all: map[string]*session{}}
}

// ownerOf returns a text that identifies the owner of a session. Later requests
// must use the same credential. Another credential of the same tenant is not
// sufficient.
func ownerOf(a brig.Actor) string {
	parts := []string{a.Tenant, a.Name, a.Key, a.Grant}
	if a.Person != nil {
		parts = append(parts, a.Person.Issuer, a.Person.Subject)
	}
	return strings.Join(parts, "\x00")
}

// begin registers a session and removes it when it ends. If its holder or its
// tenant has too many sessions, begin ends another session without a running
// call (see findSessionToEnd). It returns RateLimited if all those sessions are busy.
//
// The session's use of sandboxes also ends with its newest credential, because
// no client can use the session then. A request with another credential begins
// a new use.
func (s *sessions) begin(ctx context.Context, serverSession *mcp.ServerSession) error {
	x, oldest, err := s.add(ctx, serverSession)
	if err != nil {
		return err
	}
	if oldest != nil {
		_ = oldest.Close() // the session has already been removed from s
	}
	go func() {
		defer s.wait.Done()
		_ = serverSession.Wait() // the reason for the end does not matter
		s.endCalls(serverSession.ID())
		s.mu.Lock()
		delete(s.all, serverSession.ID())
		last := x.credential
		s.mu.Unlock()
		s.endUses(x, last)
	}()
	return nil
}

// renew makes the credential of a request the session's newest one, if it ends later
// than the current one. The caller holds s.mu.
func (s *sessions) renew(ctx context.Context, x *session) {
	expires := brig.ActorFrom(ctx).Expires
	if !x.credential.isNewer(expires) {
		return
	}
	lasting, done := httpapi.Detach(ctx)
	if x.credential != nil {
		x.credential.done()
	} else {
		x.uses = &brig.SessionUses{}
	}
	c := &credential{expires, done}
	x.credential = c
	context.AfterFunc(lasting, func() { s.endUses(x, c) })
}

// endUses ends the session's use of sandboxes if its newest credential is c.
func (s *sessions) endUses(x *session, c *credential) {
	s.mu.Lock()
	if c == nil || x.credential != c {
		s.mu.Unlock()
		return
	}
	x.credential = nil
	uses := x.uses
	s.mu.Unlock()
	c.done()
	uses.Close()
}

func (s *sessions) add(ctx context.Context, serverSession *mcp.ServerSession) (x *session, oldest *mcp.ServerSession, err error) {
	a := brig.ActorFrom(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, brig.Errorf(brig.Unavailable, "the server is ending").WithHint("try again in a moment")
	}
	if s.all[serverSession.ID()] != nil {
		// The calls of the existing session stay counted and end with it.
		return nil, nil, brig.Errorf(brig.InvalidArgument, "the session has begun already").WithHint("send initialize once")
	}
	last, err := s.findSessionToEnd(a)
	if err != nil {
		return nil, nil, err
	}
	if last != "" {
		oldest = s.all[last].serverSession
		delete(s.all, last)
	}
	x = &session{owner: ownerOf(a), tenant: a.Tenant, holder: a.Holder(), serverSession: serverSession, used: time.Now(), calls: map[*func(error)]bool{}}
	s.all[serverSession.ID()] = x
	s.renew(ctx, x)
	s.wait.Add(1)
	return x, oldest, nil
}

// findSessionToEnd returns the id of the session that must end before the actor may
// begin another one, or an empty id. If the actor's holder has its full share,
// the result is the holder's least recently used session. If the tenant has its
// maximum, the result is a session of the holder with the most sessions, which
// has at least as many sessions as the actor's holder. The caller holds s.mu.
func (s *sessions) findSessionToEnd(a brig.Actor) (id string, err error) {
	me, n, held := a.Holder(), 0, map[string]int{}
	for _, x := range s.all {
		if x.tenant == a.Tenant {
			n++
			held[x.holder]++
		}
	}
	full := held[me] >= max(1, s.maxSessions/2) // the holder's share
	if !full && n < s.maxSessions {
		return "", nil
	}
	for other, x := range s.all {
		if x.tenant != a.Tenant || len(x.calls) > 0 || x.holder != me && (full || held[x.holder] <= held[me]) {
			continue
		}
		last := s.all[id]
		if last == nil || held[x.holder] > held[last.holder] || held[x.holder] == held[last.holder] && x.used.Before(last.used) {
			id = other
		}
	}
	if id == "" {
		return "", brig.Errorf(brig.RateLimited, "the caller has %d sessions and the tenant %d, and those that could end are busy", held[me], n).
			WithHint("end one of your sessions, or wait for a call in one to end")
	}
	return id, nil
}

// isOwner reports whether the actor of a request owns the session, and marks the
// session as used, with the request's credential.
func (s *sessions) isOwner(ctx context.Context, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil || x.owner != ownerOf(brig.ActorFrom(ctx)) {
		return false
	}
	x.used = time.Now()
	s.renew(ctx, x)
	return true
}

// call registers a call in a session, and returns the session's uses of sandboxes.
// cancel is called when the session ends. A call without a session ends with its own
// request and is not counted.
func (s *sessions) call(id string, cancel context.CancelCauseFunc) (uses *brig.SessionUses, done func(), err error) {
	if s == nil {
		return nil, func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil {
		return nil, func() {}, nil
	}
	if len(x.calls) >= maxCalls {
		return nil, nil, brig.Errorf(brig.RateLimited, "%d calls of this session go on already", maxCalls).WithHint("wait for one to end, or cancel it")
	}
	end := func(err error) { cancel(err) }
	x.calls[&end] = true
	return x.uses, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.used = time.Now()
		delete(x.calls, &end)
	}, nil
}

// endCalls ends the calls of a session, because no client can receive their
// results.
func (s *sessions) endCalls(id string) {
	s.mu.Lock()
	var list []func(error)
	if x := s.all[id]; x != nil {
		for end := range x.calls {
			list = append(list, *end)
		}
	}
	s.mu.Unlock()
	for _, end := range list {
		end(brig.Errorf(brig.Canceled, "the session has ended"))
	}
}

// close ends all sessions and waits for their end.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	var ids []string
	var list []*mcp.ServerSession
	for id, x := range s.all {
		ids, list = append(ids, id), append(list, x.serverSession)
	}
	s.mu.Unlock()
	for _, id := range ids {
		s.endCalls(id)
	}
	for _, x := range list {
		_ = x.Close() // the server is shutting down
	}
	s.wait.Wait()
}
