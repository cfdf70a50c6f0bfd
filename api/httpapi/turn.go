package httpapi

import (
	"context"
	"net/http"
)

// maxTurns is the number of large responses that the server makes at the same
// time for one key. A response with program outputs needs several times their
// size in memory, and a key may have a thousand open requests.
const maxTurns = 4

// turns limits the number of concurrent large responses of a key.
type turns struct {
	slots chan struct{}
	users int // requests that have or await a slot; guarded by Limiter.mu
}

// WaitForTurn waits until fewer than maxTurns requests of the same key are making a large response, or
// until ctx ends. The caller calls done when the client has the response. A client that reads
// slowly thus delays only the requests of its own key.
func (l *Lease) WaitForTurn(ctx context.Context) (done func(), err error) {
	if l == nil || len(l.keys) == 0 {
		return func() {}, nil
	}
	f, key := l.limiter, l.keys[len(l.keys)-1]
	f.mu.Lock()
	t := f.turns[key]
	if t == nil {
		t = &turns{slots: make(chan struct{}, maxTurns)}
		f.turns[key] = t
	}
	t.users++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(f.turns, key)
		}
	}
	select {
	case t.slots <- struct{}{}:
		return func() {
			<-t.slots
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// InTurn returns a handler that waits for one of the key's turns for large
// responses before it calls h.
func InTurn(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		done, err := LeaseOf(r.Context()).WaitForTurn(r.Context())
		if err != nil {
			return err
		}
		defer done()
		return h(w, r)
	}
}
