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

// revocable is a key that can be taken back.
type revocable struct {
	mu    sync.Mutex // guards the fields below
	gone  bool
	asked int
}

// take takes the key back.
func (r *revocable) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
}

func (r *revocable) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked++; r.gone {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no such key")
	}
	return brig.Actor{Name: "ann"}, nil
}

// shown shows a key to a ring.
type shown struct{ ring *door.Keyring }

func (s shown) KeyActor(ctx context.Context, key [32]byte) (brig.Actor, error) {
	p, err := s.ring.Show(httptest.NewRequestWithContext(ctx, "GET", "/", nil), string(key[:]))
	return p.Actor, err
}

// A key is looked up once a second, and one that is taken back works for no
// longer than that.
func TestRecentKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &revocable{}
		ring := door.NewKeyring(r)
		k := shown{ring}
		for range 10 {
			if a, err := k.KeyActor(t.Context(), [32]byte{1}); err != nil || a.Name != "ann" {
				t.Fatal(a, err)
			}
		}
		if r.asked != 1 {
			t.Errorf("the store was asked %d times", r.asked)
		}
		r.gone = true
		time.Sleep(time.Second)
		for range 2 {
			if _, err := k.KeyActor(t.Context(), [32]byte{1}); brig.KindOf(err) != brig.Unauthenticated {
				t.Errorf("a key that was taken back: %v", err)
			}
		}
		r.gone = false
		if _, err := k.KeyActor(t.Context(), [32]byte{1}); err != nil {
			t.Error("a refusal was remembered")
		}
	})
}
