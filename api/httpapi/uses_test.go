package httpapi_test

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// changingKey is a key whose rights change.
type changingKey struct {
	mu    sync.Mutex // guards the fields below
	actor brig.Actor
	calls int
}

func (c *changingKey) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if end := c.actor.Expires; !end.IsZero() && !time.Now().Before(end) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "it has expired")
	}
	return c.actor, nil
}

func (c *changingKey) setActor(a brig.Actor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.actor = a
}

// A credential is not cached beyond its expiry, even if the cache entry is new.
func TestExpiredCredentialLeavesCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changingKey{actor: brig.Actor{Name: "ann", Expires: time.Now().Add(time.Second)}}
		k := ringKeys{httpapi.NewKeyring(c)}
		time.Sleep(900 * time.Millisecond)
		for range 2 {
			if _, err := k.KeyActor(t.Context(), [32]byte{1}); err != nil || c.calls != 1 {
				t.Fatalf("before its end: %v, asked %d times", err, c.calls)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if a, err := k.KeyActor(t.Context(), [32]byte{1}); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("at its end: %+v, %v", a, err)
		}
	})
}

// A request does not keep rights that its actor has lost. Rights that stay
// equal or grow do not end a request.
func TestLostRightsEndRequests(t *testing.T) {
	was := brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Admin, Scopes: []string{"run", "file."}}
	for name, c := range map[string]struct {
		change func(*brig.Actor)
		ends   bool
	}{
		"the same":           {func(*brig.Actor) {}, false},
		"more scopes":        {func(a *brig.Actor) { a.Scopes = nil }, false},
		"a higher role":      {func(a *brig.Actor) { a.Role = brig.Operator }, false},
		"a lower role":       {func(a *brig.Actor) { a.Role = brig.Member }, true},
		"fewer scopes":       {func(a *brig.Actor) { a.Scopes = []string{"run"} }, true},
		"fewer sandboxes":    {func(a *brig.Actor) { a.Sandboxes = []string{"one"} }, true},
		"an end":             {func(a *brig.Actor) { a.Expires = time.Now().Add(time.Hour) }, true},
		"an end that is now": {func(a *brig.Actor) { a.Expires = time.Now() }, true},
		"another tenant":     {func(a *brig.Actor) { a.Tenant = "rival" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := &changingKey{actor: was}
				ring := httpapi.NewKeyring(key)
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
				p, err := ring.Verify(r, "key")
				if err != nil {
					t.Fatal(err)
				}
				w := httptest.NewRecorder()
				used, done := ring.Bind(w, r, p)
				defer done()
				time.Sleep(time.Second)
				if err := used.Context().Err(); err != nil {
					t.Fatalf("it ended by itself: %v", err)
				}
				now := was
				c.change(&now)
				key.setActor(now)
				time.Sleep(time.Second)
				if err := context.Cause(used.Context()); (brig.KindOf(err) == brig.Unauthenticated) != c.ends || !c.ends && err != nil {
					t.Errorf("a second later: %v", err)
				}
				if c.change(&now); c.ends && now.Expires.IsZero() {
					// A new request has the current rights.
					p, err := ring.Verify(r, "key")
					if err != nil || !now.Covers(p.Actor) || p.Actor.Tenant != now.Tenant {
						t.Errorf("begun again: %+v, %v", p.Actor, err)
					}
				}
			})
		})
	}
}

// Work that continues after a request keeps the request's actor. It ends when the credential
// becomes invalid or when the work is canceled.
func TestDetachedWorkKeepsActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := &revocableKey{}
		ring := httpapi.NewKeyring(key)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		p, err := ring.Verify(r, "key")
		if err != nil {
			t.Fatal(err)
		}
		used, done := ring.Bind(httptest.NewRecorder(), r, p)
		detached, stop := httpapi.Detach(used.Context())
		defer stop()
		other, stopOther := httpapi.Detach(used.Context())
		done()
		time.Sleep(time.Second)
		if used.Context().Err() == nil || detached.Err() != nil || brig.ActorFrom(detached).Name != "ann" {
			t.Fatalf("after the request: %v, %v, %+v", used.Context().Err(), detached.Err(), brig.ActorFrom(detached))
		}
		stopOther()
		if other.Err() == nil || detached.Err() != nil {
			t.Errorf("after one was stopped: %v, %v", other.Err(), detached.Err())
		}
		key.revoke()
		time.Sleep(time.Second)
		if err := context.Cause(detached); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("after the key was taken back: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	detached, stop := httpapi.Detach(ctx)
	if cancel(); detached.Err() != nil {
		t.Error("what came without a key ends with its request")
	}
	if stop(); detached.Err() == nil {
		t.Error("it cannot be stopped")
	}
}

// hangingProvider accepts keys, and tokens of an identity provider that no longer responds. A
// check of such a token hangs even beyond the caller's deadline.
type hangingProvider struct {
	revocableKey
	mu        sync.Mutex // guards the fields below
	hangs     bool
	running   map[string]int
	maxChecks int // concurrent checks of one token
}

func (h *hangingProvider) PersonActor(_ context.Context, token string) (brig.Actor, error) {
	h.mu.Lock()
	hangs := h.hangs
	h.running[token]++
	h.maxChecks = max(h.maxChecks, h.running[token])
	h.mu.Unlock()
	if hangs {
		time.Sleep(10 * time.Second)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[token]--; hangs {
		return brig.Actor{}, brig.Errorf(brig.Unavailable, "the identity provider cannot be asked")
	}
	return brig.Actor{Name: "bob"}, nil
}

// An identity provider that does not respond does not delay the end of a revoked key's
// requests. For each token, at most one check runs at a time.
func TestHangingCheckDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &hangingProvider{running: map[string]int{}}
		ring := httpapi.NewKeyring(keys)
		var ends []func()
		bind := func(key string) context.Context {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			p, err := ring.Verify(r, key)
			if err != nil {
				t.Fatal(err)
			}
			used, done := ring.Bind(httptest.NewRecorder(), r, p)
			ends = append(ends, done)
			return used.Context()
		}
		var people []context.Context
		for _, sub := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			people = append(people, bind("eyJ"+sub+".x.y"))
		}
		used := bind("key")
		keys.mu.Lock()
		keys.hangs = true
		keys.mu.Unlock()
		time.Sleep(time.Second) // the checks of the tokens hang
		if err := used.Err(); err != nil {
			t.Fatalf("before the key is revoked: %v", err)
		}
		keys.revoke()
		time.Sleep(time.Second)
		if err := context.Cause(used); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("a second after the key was revoked: %v", err)
		}
		time.Sleep(time.Minute)
		for _, person := range people {
			if err := person.Err(); err != nil {
				t.Errorf("a token that could not be checked: %v", err)
			}
		}
		keys.mu.Lock()
		maximum := keys.maxChecks
		keys.mu.Unlock()
		if maximum != 1 {
			t.Errorf("%d checks of a token at once, want 1", maximum)
		}
		for _, end := range ends {
			end()
		}
		time.Sleep(time.Hour) // the last checks end
	})
}
