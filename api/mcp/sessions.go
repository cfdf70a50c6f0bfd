package mcp

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// maxCalls is how many calls of one session go on at once.
const maxCalls = 32

// sessions are those of a door that have begun: whose they are, and what goes
// on in them. The library ends them when they are idle.
type sessions struct {
	most int // of a tenant
	wait sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	all    map[string]*session
	closed bool
}

// session is one of them. The fields are guarded by its sessions' mutex.
type session struct {
	owner, tenant string
	ends          *mcp.ServerSession
	used          time.Time
	calls         map[*func(error)]bool
}

func newSessions(most int) *sessions { return &sessions{most: most, all: map[string]*session{}} }

// ownerOf names whoever a session is of: what is shown the next time must be
// the same, not just somebody of the same tenant.
func ownerOf(a brig.Actor) string {
	parts := []string{a.Tenant, a.Name, a.Key, a.Grant}
	if a.Person != nil {
		parts = append(parts, a.Person.Issuer, a.Person.Subject)
	}
	return strings.Join(parts, "\x00")
}

// begin makes a session known, and forgets it when it ends. If its tenant has
// too many, the one that was not used for longest makes room, unless all have
// something going on.
func (s *sessions) begin(a brig.Actor, ends *mcp.ServerSession) error {
	oldest, err := s.add(a, ends)
	if err != nil {
		return err
	}
	if oldest != nil {
		_ = oldest.Close() // it has been forgotten
	}
	go func() {
		defer s.wait.Done()
		_ = ends.Wait() // however it ended
		s.part(ends.ID())
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, ends.ID())
	}()
	return nil
}

func (s *sessions) add(a brig.Actor, ends *mcp.ServerSession) (oldest *mcp.ServerSession, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, brig.Errorf(brig.Unavailable, "the server is ending").WithHint("try again in a moment")
	}
	if s.all[ends.ID()] != nil {
		// What goes on in it stays counted, and ends with it.
		return nil, brig.Errorf(brig.InvalidArgument, "the session has begun already").WithHint("send initialize once")
	}
	n, last := 0, ""
	for id, x := range s.all {
		if x.tenant != a.Tenant {
			continue
		}
		n++
		if len(x.calls) == 0 && (last == "" || x.used.Before(s.all[last].used)) {
			last = id
		}
	}
	if n >= s.most && last == "" {
		return nil, brig.Errorf(brig.RateLimited, "there are %d sessions, and all are busy", n).WithHint("end one, or wait for a call to end")
	}
	if n >= s.most {
		oldest = s.all[last].ends
		delete(s.all, last)
	}
	s.all[ends.ID()] = &session{owner: ownerOf(a), tenant: a.Tenant, ends: ends, used: time.Now(), calls: map[*func(error)]bool{}}
	s.wait.Add(1)
	return oldest, nil
}

// owned reports whether there is such a session of a's, and that it is used.
func (s *sessions) owned(id string, a brig.Actor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil || x.owner != ownerOf(a) {
		return false
	}
	x.used = time.Now()
	return true
}

// call takes a seat for a call in a session, which cancel ends. A call of none
// has its own request, and needs no seat.
func (s *sessions) call(id string, cancel context.CancelCauseFunc) (done func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil {
		return func() {}, nil
	}
	if len(x.calls) >= maxCalls {
		return nil, brig.Errorf(brig.RateLimited, "%d calls of this session go on already", maxCalls).WithHint("wait for one to end, or cancel it")
	}
	end := func(err error) { cancel(err) }
	x.calls[&end] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.used = time.Now()
		delete(x.calls, &end)
	}, nil
}

// part ends what goes on in a session: nobody is there any more who could be
// told what comes of it.
func (s *sessions) part(id string) {
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

// close ends all sessions, and waits for that.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	var ids []string
	var list []*mcp.ServerSession
	for id, x := range s.all {
		ids, list = append(ids, id), append(list, x.ends)
	}
	s.mu.Unlock()
	for _, id := range ids {
		s.part(id)
	}
	for _, x := range list {
		_ = x.Close() // nobody is left to be told
	}
	s.wait.Wait()
}
