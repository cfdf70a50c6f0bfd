package door_test

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// changing is a key whose rights change.
type changing struct {
	mu    sync.Mutex // guards the fields below
	actor brig.Actor
	asked int
}

func (c *changing) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if end := c.actor.Expires; !end.IsZero() && !time.Now().Before(end) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "it has expired")
	}
	return c.actor, nil
}

func (c *changing) become(a brig.Actor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.actor = a
}

// What has an end is not remembered beyond it, however new it is.
func TestEndsAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{actor: brig.Actor{Name: "ann", Expires: time.Now().Add(time.Second)}}
		k := shown{door.NewKeyring(c)}
		time.Sleep(900 * time.Millisecond)
		for range 2 {
			if _, err := k.KeyActor(t.Context(), [32]byte{1}); err != nil || c.asked != 1 {
				t.Fatalf("before its end: %v, asked %d times", err, c.asked)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if a, err := k.KeyActor(t.Context(), [32]byte{1}); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("at its end: %+v, %v", a, err)
		}
	})
}

// What goes on as somebody does not keep rights that they have lost. Rights that
// stay or grow end nothing.
func TestRightsThatAreLost(t *testing.T) {
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
				key := &changing{actor: was}
				ring := door.NewKeyring(key)
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
				p, err := ring.Show(r, "key")
				if err != nil {
					t.Fatal(err)
				}
				w := httptest.NewRecorder()
				used, done := ring.Use(w, r, p)
				defer done()
				time.Sleep(time.Second)
				if err := used.Context().Err(); err != nil {
					t.Fatalf("it ended by itself: %v", err)
				}
				now := was
				c.change(&now)
				key.become(now)
				time.Sleep(time.Second)
				if err := context.Cause(used.Context()); (brig.KindOf(err) == brig.Unauthenticated) != c.ends || !c.ends && err != nil {
					t.Errorf("a second later: %v", err)
				}
				if c.change(&now); c.ends && now.Expires.IsZero() {
					// Who begins again has what there is now.
					p, err := ring.Show(r, "key")
					if err != nil || !now.Covers(p.Actor) || p.Actor.Tenant != now.Tenant {
						t.Errorf("begun again: %+v, %v", p.Actor, err)
					}
				}
			})
		})
	}
}

// What a request leaves behind knows who has asked for it, outlives the request,
// and ends with what was shown for it or when nobody wants it any more.
func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := &revocable{}
		ring := door.NewKeyring(key)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		p, err := ring.Show(r, "key")
		if err != nil {
			t.Fatal(err)
		}
		used, done := ring.Use(httptest.NewRecorder(), r, p)
		left, stop := door.Outlive(used.Context())
		defer stop()
		other, stopOther := door.Outlive(used.Context())
		done()
		time.Sleep(time.Second)
		if used.Context().Err() == nil || left.Err() != nil || brig.ActorFrom(left).Name != "ann" {
			t.Fatalf("after the request: %v, %v, %+v", used.Context().Err(), left.Err(), brig.ActorFrom(left))
		}
		stopOther()
		if other.Err() == nil || left.Err() != nil {
			t.Errorf("after one was stopped: %v, %v", other.Err(), left.Err())
		}
		key.take()
		time.Sleep(time.Second)
		if err := context.Cause(left); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("after the key was taken back: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	left, stop := door.Outlive(ctx)
	if cancel(); left.Err() != nil {
		t.Error("what came without a key ends with its request")
	}
	if stop(); left.Err() == nil {
		t.Error("it cannot be stopped")
	}
}
