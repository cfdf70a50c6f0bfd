package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
)

// visitHeader carries a request's visit to the handlers of its messages, which
// the library calls with a context of the session's, not of the request's. A
// client's own is overwritten.
const visitHeader = "Brig-Visit"

// visits are the HTTP requests that go on, by an id that nobody else knows.
type visits struct{ all sync.Map }

// begin remembers a request until the returned function is called.
func (v *visits) begin(r *http.Request) (end func()) {
	id := rand.Text()
	v.all.Store(id, r.Context())
	r.Header.Set(visitHeader, id)
	return func() { v.all.Delete(id) }
}

// find returns the context of the request that brought a message. One that is
// over has nobody who waits for an answer.
func (v *visits) find(h http.Header) (context.Context, bool) {
	if v == nil || h == nil {
		return nil, false
	}
	ctx, ok := v.all.Load(h.Get(visitHeader))
	if !ok {
		return nil, false
	}
	return ctx.(context.Context), true //nolint:forcetypeassert // nothing else is stored
}

// merged is a context that ends as the first does, and knows what both know.
type merged struct {
	context.Context
	visit context.Context
}

// Value implements context.Context. The visit knows better who is calling.
func (m merged) Value(key any) any {
	if v := m.visit.Value(key); v != nil {
		return v
	}
	return m.Context.Value(key)
}

// during returns a context for a call in a visit: it ends with either, or when
// the returned function is called.
func during(call, visit context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(merged{call, visit})
	stop := context.AfterFunc(visit, func() { cancel(context.Cause(visit)) })
	return ctx, func(err error) { stop(); cancel(err) }
}
