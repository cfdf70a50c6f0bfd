package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

const (
	// recheck is the interval at which the keys of open requests are checked
	// again.
	recheck = 400 * time.Millisecond
	// endGrace is how long a request with an invalid key may take to end before
	// its connection is closed.
	endGrace = 200 * time.Millisecond
	// checkTimeout limits one check.
	checkTimeout = 5 * time.Second
)

// openRequests are the open requests of one key.
type openRequests struct {
	ctx   context.Context // context of the first request, without its cancellation
	proof Proof
	all   map[*openRequest]bool
	// checking is true while a check of the key is running.
	checking bool
}

type openRequest struct {
	actor  brig.Actor // actor when the request began
	cancel context.CancelCauseFunc
	w      http.ResponseWriter // nil for work without a request
	ended  bool
}

// Bind returns a copy of r with the actor in its context. The context ends when
// the proof becomes invalid. The caller must call done when r has been
// answered.
func (k *Keyring) Bind(w http.ResponseWriter, r *http.Request, p Proof) (used *http.Request, done func()) {
	ctx := context.WithValue(brig.WithActor(r.Context(), p.Actor), ringKey{}, requestAuth{k, p})
	ctx, done = k.bindContext(ctx, p, w)
	return r.WithContext(ctx), done
}

type ringKey struct{}

// requestAuth is the authentication of a request, stored in its context.
type requestAuth struct {
	ring  *Keyring
	proof Proof
}

// Detach returns a context for work that continues after the request of ctx
// has been answered. It has the values of ctx, and it ends when done is called
// or the request's proof becomes invalid.
func Detach(ctx context.Context) (_ context.Context, done func()) {
	h, ok := ctx.Value(ringKey{}).(requestAuth)
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return context.WithCancel(ctx) // the request needed no credential
	}
	return h.ring.bindContext(ctx, h.proof, nil)
}

// bindContext returns a context that ends when done is called or the proof
// becomes invalid.
func (k *Keyring) bindContext(ctx context.Context, p Proof, w http.ResponseWriter) (_ context.Context, done func()) {
	base := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	u := &openRequest{actor: p.Actor, cancel: cancel, w: w}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.open[p.name]
	if all == nil {
		all = &openRequests{ctx: base, proof: p, all: map[*openRequest]bool{}}
		k.open[p.name] = all
	}
	all.all[u] = true
	if !k.watching {
		k.watching = true
		time.AfterFunc(recheck, k.watch)
	}
	return ctx, func() {
		cancel(nil)
		k.mu.Lock()
		defer k.mu.Unlock()
		if delete(all.all, u); len(all.all) == 0 && k.open[p.name] == all {
			delete(k.open, p.name)
		}
	}
}

// watch periodically starts a check of every key that has open requests. It
// does not wait for the checks, because a check that needs an identity provider
// may take long and must not delay the end of other keys' requests.
func (k *Keyring) watch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.open) == 0 {
		k.watching = false
		return
	}
	for _, u := range k.open {
		if !u.checking {
			u.checking = true
			go k.recheck(u)
		}
	}
	time.AfterFunc(recheck, k.watch)
}

// recheck checks the key of open requests once, and ends the requests that are
// no longer authorized.
func (k *Keyring) recheck(u *openRequests) {
	ctx, cancel := context.WithTimeout(u.ctx, checkTimeout)
	now, err := u.proof.check(ctx)
	cancel()
	switch {
	case brig.KindOf(err) == brig.Unauthenticated:
		k.endRequests(u, err, func(brig.Actor) bool { return true })
	case err == nil:
		// End the requests that began with more rights than remain.
		k.endRequests(u, errRightsReduced(), func(a brig.Actor) bool { return a.Tenant != now.Tenant || !now.Covers(a) })
	}
	// Any other error is an error of the store and does not invalidate the key.
	k.mu.Lock()
	defer k.mu.Unlock()
	u.checking = false
}

func errRightsReduced() error {
	return brig.Errorf(brig.Unauthenticated, "the caller may do less than when this began").WithHint("begin it again")
}

// endRequests ends the requests of a key for whose actor ends returns true.
// Requests that began after all earlier ones had ended have their own check.
func (k *Keyring) endRequests(all *openRequests, cause error, ends func(brig.Actor) bool) {
	k.mu.Lock()
	var list []*openRequest
	remaining := 0
	for u := range all.all {
		switch {
		case u.ended:
		case ends(u.actor):
			u.ended = true
			list = append(list, u)
		default:
			remaining++
		}
	}
	if remaining == 0 && k.open[all.proof.name] == all {
		delete(k.open, all.proof.name)
	}
	if len(list) > 0 {
		delete(k.cache, all.proof.name)
	}
	k.mu.Unlock()
	for _, u := range list {
		u.cancel(cause)
	}
	// A handler that is blocked in a read or write does not notice the
	// cancellation.
	time.AfterFunc(endGrace, func() {
		for _, u := range list {
			k.mu.Lock()
			stuck := all.all[u]
			k.mu.Unlock()
			if stuck && u.w != nil {
				past := time.Unix(1, 0)
				c := http.NewResponseController(u.w)
				_ = c.SetReadDeadline(past) // a writer without deadlines ignores this
				_ = c.SetWriteDeadline(past)
			}
		}
	})
}
