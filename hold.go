package brig

import (
	"context"
	"sync"
)

// Holder counts a client's open connection, for example to a kernel, as use of a sandbox, if the
// connection does not reach into the sandbox itself. Like any use, it renews the lease, within
// the maximum lifetime. It neither prevents a pause or a freeze nor resumes the sandbox, because
// the next call resumes it.
type Holder interface {
	// Hold begins the use. It rejects exactly the calls of op that Gate.Check
	// rejects. ended is closed when the sandbox ends permanently before release
	// is called; a pause does not count as an end.
	Hold(ctx context.Context, op Op, name string) (ended <-chan struct{}, release func(), err error)
}

// SessionUses is the set of sandboxes that the calls of a client's session have used. The open
// session counts as use of each of these sandboxes, as with Holder. The zero value is a session
// without calls.
type SessionUses struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	held   map[ID]func()
}

// Add adds a sandbox, unless it has already been added or the session is closed.
func (s *SessionUses) Add(id ID, hold func() (release func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.held[id] != nil {
		return
	}
	if s.held == nil {
		s.held = map[ID]func(){}
	}
	s.held[id] = hold()
}

// Close ends the session's use of all sandboxes.
func (s *SessionUses) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, release := range s.held {
		release()
	}
	s.held = nil
}

type sessionUsesKey struct{}

// WithSessionUses makes calls with the returned context add the sandboxes that they use
// to a session.
func WithSessionUses(ctx context.Context, s *SessionUses) context.Context {
	return context.WithValue(ctx, sessionUsesKey{}, s)
}

// SessionUsesFrom returns the session of a context, or nil.
func SessionUsesFrom(ctx context.Context) *SessionUses {
	s, _ := ctx.Value(sessionUsesKey{}).(*SessionUses)
	return s
}
