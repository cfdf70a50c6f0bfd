package door

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

const (
	// recheck is how often is looked whether keys with which something goes on
	// are still good.
	recheck = 400 * time.Millisecond
	// partTime is how long what goes on with a key that is not may take to end,
	// before its connection is broken.
	partTime = 200 * time.Millisecond
	// checkTime bounds one look.
	checkTime = 5 * time.Second
)

// uses are the requests that go on with one key.
type uses struct {
	ctx   context.Context // of the first of them, without its end
	proof Proof
	all   map[*use]bool
}

type use struct {
	actor  brig.Actor // as which it goes on
	cancel context.CancelCauseFunc
	w      http.ResponseWriter // nil for what goes on without a request
	parted bool
}

// Use returns a copy of r with the actor in its context, which ends when the
// proof is good no more. The caller calls done when r has been answered.
func (k *Keyring) Use(w http.ResponseWriter, r *http.Request, p Proof) (used *http.Request, done func()) {
	ctx := context.WithValue(brig.WithActor(r.Context(), p.Actor), ringKey{}, held{k, p})
	ctx, done = k.hold(ctx, p, w)
	return r.WithContext(ctx), done
}

type ringKey struct{}

// held is what a request's context knows of how it came in.
type held struct {
	ring  *Keyring
	proof Proof
}

// Outlive returns a context for what goes on when the request of ctx has been
// answered. It knows what ctx knows, and ends when done is called or the proof is
// good no more with which the request came.
func Outlive(ctx context.Context) (_ context.Context, done func()) {
	h, ok := ctx.Value(ringKey{}).(held)
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return context.WithCancel(ctx) // nobody had to show anything
	}
	return h.ring.hold(ctx, h.proof, nil)
}

// hold returns a context that ends when done is called or the proof is good no
// more.
func (k *Keyring) hold(ctx context.Context, p Proof, w http.ResponseWriter) (_ context.Context, done func()) {
	base := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	u := &use{actor: p.Actor, cancel: cancel, w: w}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.open[p.name]
	if all == nil {
		all = &uses{ctx: base, proof: p, all: map[*use]bool{}}
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

// watch looks at every key with which something goes on, and again in a moment
// while there are any.
func (k *Keyring) watch() {
	begin := time.Now()
	k.mu.Lock()
	if len(k.open) == 0 {
		k.watching = false
		k.mu.Unlock()
		return
	}
	keys := slices.Collect(maps.Values(k.open))
	k.mu.Unlock()
	for _, u := range keys {
		ctx, cancel := context.WithTimeout(u.ctx, checkTime)
		now, err := u.proof.check(ctx)
		cancel()
		switch {
		case brig.KindOf(err) == brig.Unauthenticated:
			k.part(u.proof.name, err, func(brig.Actor) bool { return true })
		case err == nil:
			// What began with more rights than are left does not keep them.
			k.part(u.proof.name, errLess(), func(a brig.Actor) bool { return a.Tenant != now.Tenant || !now.Covers(a) })
		}
		// Any other error is the store's, and says nothing about a key.
	}
	time.AfterFunc(max(recheck-time.Since(begin), recheck/10), k.watch)
}

func errLess() error {
	return brig.Errorf(brig.Unauthenticated, "the caller may do less than when this began").WithHint("begin it again")
}

// part ends what goes on with a key as somebody whom ends tells of.
func (k *Keyring) part(name [32]byte, why error, ends func(brig.Actor) bool) {
	k.mu.Lock()
	all := k.open[name]
	var list []*use
	left := 0
	if all != nil {
		for u := range all.all {
			switch {
			case u.parted:
			case ends(u.actor):
				u.parted = true
				list = append(list, u)
			default:
				left++
			}
		}
	}
	if left == 0 {
		delete(k.open, name)
	}
	if len(list) > 0 {
		delete(k.seen, name)
	}
	k.mu.Unlock()
	for _, u := range list {
		u.cancel(why)
	}
	// Who is stuck in reading or writing does not hear that.
	time.AfterFunc(partTime, func() {
		for _, u := range list {
			k.mu.Lock()
			stuck := all.all[u]
			k.mu.Unlock()
			if stuck && u.w != nil {
				past := time.Unix(1, 0)
				c := http.NewResponseController(u.w)
				_ = c.SetReadDeadline(past) // a writer that knows no deadlines has none
				_ = c.SetWriteDeadline(past)
			}
		}
	})
}
