package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// requestIDHeader is the header with which the handler of a message finds its
// HTTP request. The library calls the handler with the context of the session
// and not of the request. A value from the client is overwritten.
const requestIDHeader = "Brig-Visit"

// httpRequests are the contexts of the running HTTP requests, by a secret id.
type httpRequests struct{ all sync.Map }

// begin stores the context of a request until the returned function is called.
func (v *httpRequests) begin(r *http.Request) (end func()) {
	id := rand.Text()
	v.all.Store(id, r.Context())
	r.Header.Set(requestIDHeader, id)
	return func() { v.all.Delete(id) }
}

// find returns the context of the request in which a message arrived. It
// reports false if the request has ended.
func (v *httpRequests) find(h http.Header) (context.Context, bool) {
	if v == nil || h == nil {
		return nil, false
	}
	ctx, ok := v.all.Load(h.Get(requestIDHeader))
	if !ok {
		return nil, false
	}
	return ctx.(context.Context), true //nolint:forcetypeassert // no other type is stored
}

// mergedContext ends with the embedded context and has the values of both
// contexts.
type mergedContext struct {
	context.Context
	requestContext context.Context
}

// Value implements context.Context. The value of the request takes precedence,
// because the request's context has the actor.
func (m mergedContext) Value(key any) any {
	if v := m.requestContext.Value(key); v != nil {
		return v
	}
	return m.Context.Value(key)
}

// mergeContext returns a context for a call that belongs to a request. It ends
// when either of the two contexts ends or the returned function is called.
func mergeContext(call, requestContext context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(mergedContext{call, requestContext})
	stop := context.AfterFunc(requestContext, func() { cancel(context.Cause(requestContext)) })
	return ctx, func(err error) { stop(); cancel(err) }
}

// requestTurn is an HTTP request's turn for one large response. The turn ends
// with the request, because the client has received the response only then. If
// the messages of a batch could wait for further turns, requests could
// deadlock.
type requestTurn struct {
	request context.Context
	used    atomic.Bool
}

type turnKey struct{}

// withTurn adds a requestTurn to the context of a request.
func withTurn(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{}, &requestTurn{request: ctx})
}

// takeTurn waits for one of the key's turns for large responses. Outside of HTTP there is only
// one client, which needs no turn.
func takeTurn(ctx context.Context) error {
	t, ok := ctx.Value(turnKey{}).(*requestTurn)
	if !ok {
		return nil
	}
	if !t.used.CompareAndSwap(false, true) {
		return brig.Errorf(brig.InvalidArgument, "there is more than one call with a large answer in one request").WithHint("send them one by one")
	}
	done, err := httpapi.LeaseOf(ctx).WaitForTurn(ctx)
	if err != nil {
		return err
	}
	context.AfterFunc(t.request, done)
	return nil
}
