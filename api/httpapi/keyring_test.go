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

// revocableKey is a key that can be revoked.
type revocableKey struct {
	mu      sync.Mutex // guards the fields below
	revoked bool
	calls   int
}

// revoke revokes the key.
func (r *revocableKey) revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked = true
}

func (r *revocableKey) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls++; r.revoked {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no such key")
	}
	return brig.Actor{Name: "ann"}, nil
}

// ringKeys looks up a key through a Keyring.
type ringKeys struct{ ring *httpapi.Keyring }

func (s ringKeys) KeyActor(ctx context.Context, key [32]byte) (brig.Actor, error) {
	p, err := s.ring.Verify(httptest.NewRequestWithContext(ctx, "GET", "/", nil), string(key[:]))
	return p.Actor, err
}

// A cached key is looked up again within a second, so a revoked key works no
// longer than that.
func TestRevokedKeyLeavesCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &revocableKey{}
		ring := httpapi.NewKeyring(r)
		k := ringKeys{ring}
		for range 10 {
			if a, err := k.KeyActor(t.Context(), [32]byte{1}); err != nil || a.Name != "ann" {
				t.Fatal(a, err)
			}
		}
		if r.calls != 1 {
			t.Errorf("the store was asked %d times", r.calls)
		}
		r.revoked = true
		time.Sleep(time.Second)
		for range 2 {
			if _, err := k.KeyActor(t.Context(), [32]byte{1}); brig.KindOf(err) != brig.Unauthenticated {
				t.Errorf("a key that was taken back: %v", err)
			}
		}
		r.revoked = false
		if _, err := k.KeyActor(t.Context(), [32]byte{1}); err != nil {
			t.Error("a refusal was remembered")
		}
	})
}
