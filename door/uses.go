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
	cancel context.CancelCauseFunc
	w      http.ResponseWriter
}

// Use returns a copy of r with the actor in its context, which ends when the
// proof is good no more. The caller calls done when r has been answered.
func (k *Keyring) Use(w http.ResponseWriter, r *http.Request, p Proof) (used *http.Request, done func()) {
	ctx, cancel := context.WithCancelCause(brig.WithActor(r.Context(), p.Actor))
	u := &use{cancel: cancel, w: w}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.open[p.name]
	if all == nil {
		all = &uses{ctx: context.WithoutCancel(r.Context()), proof: p, all: map[*use]bool{}}
		k.open[p.name] = all
	}
	all.all[u] = true
	if !k.watching {
		k.watching = true
		time.AfterFunc(recheck, k.watch)
	}
	return r.WithContext(ctx), func() {
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
		_, err := u.proof.check(ctx)
		cancel()
		// A store that fails says nothing about a key.
		if brig.KindOf(err) == brig.Unauthenticated {
			k.part(u.proof.name, err)
		}
	}
	time.AfterFunc(max(recheck-time.Since(begin), recheck/10), k.watch)
}

// part ends what goes on with a key.
func (k *Keyring) part(name [32]byte, why error) {
	k.mu.Lock()
	all := k.open[name]
	delete(k.open, name)
	delete(k.seen, name)
	var list []*use
	if all != nil {
		for u := range all.all {
			list = append(list, u)
		}
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
			if stuck {
				past := time.Unix(1, 0)
				c := http.NewResponseController(u.w)
				_ = c.SetReadDeadline(past) // a writer that knows no deadlines has none
				_ = c.SetWriteDeadline(past)
			}
		}
	})
}
