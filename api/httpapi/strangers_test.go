package httpapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/attack"
)

// countingKeys has one key and counts the lookups of other keys.
type countingKeys struct{ guesses int }

const (
	rightKey = "brig_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	otherKey = "brig_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func (k *countingKeys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	if hash == sha256.Sum256([]byte(rightKey)) || hash == sha256.Sum256([]byte(otherKey)) {
		return brig.Actor{Name: "ann", Role: brig.Viewer}, nil
	}
	k.guesses++
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "none")
}

// endedKeys has one valid key and one expired key.
type endedKeys struct{}

func (endedKeys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	err := brig.Errorf(brig.Unauthenticated, "none")
	switch hash {
	case sha256.Sum256([]byte(rightKey)):
		return brig.Actor{Name: "ann", Role: brig.Viewer}, nil
	case sha256.Sum256([]byte(otherKey)):
		return brig.Actor{}, brig.MarkGenuine(err)
	}
	return brig.Actor{}, err
}

// An expired credential always gets status 401, regardless of the number of attempts and of the
// address, and delays no other request.
func TestExpiredKeysDoNotCountAsGuesses(t *testing.T) {
	h := httpapi.Auth(endedKeys{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ask := func(key string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	wrong := func(i int) string { return fmt.Sprintf("brig_%048d", i) }
	for range 100 {
		if code := ask(otherKey); code != http.StatusUnauthorized {
			t.Fatalf("an expired key: %d", code)
		}
	}
	if code := ask(wrong(0)); code != http.StatusUnauthorized {
		t.Errorf("the first wrong key from this address: %d", code)
	}
	// Control: wrong keys are delayed. At the same address, neither an expired key nor a valid
	// key that was never used before is delayed.
	for i := range 30 {
		ask(wrong(i))
	}
	if code := ask(wrong(99)); code != http.StatusTooManyRequests {
		t.Errorf("a wrong key after 30 others: %d", code)
	}
	if a, b := ask(otherKey), ask(rightKey); a != http.StatusUnauthorized || b != http.StatusNoContent {
		t.Errorf("after 30 wrong keys, an expired key: %d, and a valid one: %d", a, b)
	}
}

// A client that tries ten thousand keys gets increasing delays. The delay never affects a valid
// key from any address, because all clients behind a reverse proxy may share one address.
func TestGuessedKeysAreDelayed(t *testing.T) {
	attack.Case(t, "API-02", "10,000 keys from one address, and from a network of IPv6")
	synctest.Test(t, func(t *testing.T) {
		keys := &countingKeys{}
		h := httpapi.Auth(keys, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		ask := func(addr, key string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.RemoteAddr = addr
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		if w := ask("192.0.2.7:1", rightKey); w.Code != http.StatusNoContent {
			t.Fatalf("a good key: %d", w.Code)
		}
		byStatus := map[int]int{}
		for i := range 10_000 {
			w := ask(fmt.Sprintf("192.0.2.9:%d", 1+i%60000), fmt.Sprintf("brig_%048d", i))
			byStatus[w.Code]++
			if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Fatal("the response has no Retry-After header")
			}
			time.Sleep(10 * time.Millisecond) // 100 seconds in total
		}
		if byStatus[http.StatusTooManyRequests] < 9900 || byStatus[http.StatusUnauthorized]+byStatus[http.StatusTooManyRequests] != 10_000 {
			t.Errorf("responses by status: %v", byStatus)
		}
		for _, key := range []string{rightKey, otherKey} { // only rightKey was used before
			if w := ask("192.0.2.9:5", key); w.Code != http.StatusNoContent {
				t.Errorf("a good key from the same address: %d", w.Code)
			}
		}
		if w := ask("192.0.2.10:5", rightKey); w.Code != http.StatusNoContent {
			t.Errorf("a good key from elsewhere: %d", w.Code)
		}
		for i := range 30 { // an IPv6 client controls a whole network
			ask(fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprintf("brig_%048d", i))
		}
		if w := ask("[2001:db8::ffff]:1", fmt.Sprintf("brig_%048d", 99)); w.Code != http.StatusTooManyRequests {
			t.Errorf("another address of the same network: %d", w.Code)
		}
		// Control: guesses from many addresses are not delayed, because the
		// delay belongs to the address.
		waited := 0
		for i := range 200 {
			if w := ask(fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprintf("brig_9%047d", i)); w.Code != http.StatusUnauthorized {
				waited++
			}
		}
		if waited != 0 {
			t.Errorf("of 200 guesses from 200 addresses %d have to wait", waited)
		}
		attack.RecordMutant("API-02", "200 keys from 200 addresses", "the address", waited == 0)
		time.Sleep(11 * time.Minute)
		if w := ask("192.0.2.9:5", rightKey); w.Code != http.StatusNoContent {
			t.Errorf("a good key, long after: %d", w.Code)
		}
	})
}

// Requests with a revoked key end within a second, and no other requests end.
// Control: without the Keyring no request would end.
func TestRevokedStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := &revocableKey{}
		ring, other := httpapi.NewKeyring(key), httpapi.NewKeyring(&revocableKey{})
		start := func(ring *httpapi.Keyring) <-chan error {
			ended := make(chan error, 1)
			go func() {
				h := httpapi.Auth(ring, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					ended <- context.Cause(r.Context())
				}))
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
				r.Header.Set("Authorization", "Bearer "+rightKey)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			synctest.Wait()
			return ended
		}
		a, b, c := start(ring), start(ring), start(other)
		time.Sleep(time.Hour)
		select {
		case err := <-a:
			t.Fatalf("it ended with a good key: %v", err)
		default:
		}
		key.revoke()
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		for _, ended := range []<-chan error{a, b} {
			select {
			case err := <-ended:
				if brig.KindOf(err) != brig.Unauthenticated {
					t.Errorf("it ended because of %v", err)
				}
			default:
				t.Error("it goes on")
			}
		}
		select {
		case err := <-c:
			t.Errorf("another key's ended: %v", err)
		default:
		}
	})
}

// When the table of addresses is full, expired addresses are dropped, and the other addresses
// keep their delays.
func TestFailedClientsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httpapi.Auth(&countingKeys{}, http.NotFoundHandler())
		ask := func(i int) int {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)
			r.Header.Set("Authorization", fmt.Sprintf("Bearer brig_%048d", i))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		const maximum, last = 10_000, 9_999 // addresses in the table
		for i := range last {
			ask(i)
		}
		time.Sleep(10*time.Minute - 500*time.Millisecond) // just before they expire
		for range 30 {
			ask(last) // must wait a second from now on
		}
		time.Sleep(500 * time.Millisecond)
		ask(maximum) // one address too many, exactly when the first ones expire
		if code := ask(last); code != http.StatusTooManyRequests {
			t.Errorf("an address that has just guessed is answered %d", code)
		}
	})
}

// A key with an invalid byte at any position is not looked up.
func TestImplausibleKeysAreNotLookedUp(t *testing.T) {
	good := []byte(rightKey)
	for i := len("brig_"); i < len(good)-1; i++ { // a space at the end is trimmed and therefore not part of the key
		for _, c := range []byte{0, ' ', 0x7f, 0xff} {
			bad := append([]byte(nil), good...)
			bad[i] = c
			keys := &countingKeys{}
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header["Authorization"] = []string{"Bearer " + string(bad)}
			w := httptest.NewRecorder()
			httpapi.Auth(keys, http.NotFoundHandler()).ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || keys.guesses != 0 {
				t.Errorf("%q is answered %d after %d lookups", bad, w.Code, keys.guesses)
			}
		}
	}
}

// Keys of the form that E2B clients require are valid for every API.
func TestAuthAcceptsE2BKeys(t *testing.T) {
	for key, lookups := range map[string]int{
		"e2b_0123456789abcdef0123456789abcdef01234567":  1,
		"e2b_0123456789abcdef0123456789abcdef0123456":   0,
		"e2b_0123456789abcdef0123456789abcdef012345678": 0,
		"e2b_0123456789abcdef0123456789abcdef0123456g":  0,
	} {
		keys := &countingKeys{}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		httpapi.Auth(keys, http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		if keys.guesses != lookups {
			t.Errorf("%s is looked up %d times, not %d", key, keys.guesses, lookups)
		}
	}
}
