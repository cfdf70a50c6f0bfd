package door_test

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
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/internal/attack"
)

// counted knows one key, and counts how often it was asked for others.
type counted struct{ guesses int }

const rightKey = "brig_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func (k *counted) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	if hash == sha256.Sum256([]byte(rightKey)) {
		return brig.Actor{Name: "ann", Role: brig.Viewer}, nil
	}
	k.guesses++
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "none")
}

// Whoever tries ten thousand keys is told to wait, for longer and longer, and
// none of what is tried meanwhile is looked up. Others are not held up, nor is
// a key that was used from there before.
func TestGuessing(t *testing.T) {
	attack.Case(t, "API-02", "10,000 keys from one address, and from a network of IPv6")
	synctest.Test(t, func(t *testing.T) {
		keys := &counted{}
		h := door.Auth(keys, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
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
		told := map[int]int{}
		for i := range 10_000 {
			w := ask(fmt.Sprintf("192.0.2.9:%d", 1+i%60000), fmt.Sprintf("brig_%048d", i))
			told[w.Code]++
			if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Fatal("it is not told when to try again")
			}
			time.Sleep(10 * time.Millisecond) // 100 seconds in all
		}
		if told[http.StatusTooManyRequests] < 9900 || told[http.StatusUnauthorized]+told[http.StatusTooManyRequests] != 10_000 || keys.guesses > 30 {
			t.Errorf("it is told %v, and %d were looked up", told, keys.guesses)
		}
		if w := ask("192.0.2.9:5", rightKey); w.Code == http.StatusTooManyRequests {
			t.Error("a key that was used of late is taken for a guess")
		}
		if w := ask("192.0.2.10:5", rightKey); w.Code != http.StatusNoContent {
			t.Errorf("a good key from elsewhere: %d", w.Code)
		}
		for i := range 30 { // of IPv6 everybody has a whole network
			ask(fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprintf("brig_%048d", i))
		}
		if w := ask("[2001:db8::ffff]:1", fmt.Sprintf("brig_%048d", 99)); w.Code != http.StatusTooManyRequests {
			t.Errorf("another address of the same network: %d", w.Code)
		}
		// The control: from as many addresses as there are guesses each is looked
		// up. What holds the others up is where they come from.
		before := keys.guesses
		for i := range 200 {
			ask(fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprintf("brig_9%047d", i))
		}
		if keys.guesses-before != 200 {
			t.Errorf("of 200 guesses from 200 addresses %d were looked up", keys.guesses-before)
		}
		attack.Seen("API-02", "200 keys from 200 addresses", "the address", keys.guesses-before == 200)
		time.Sleep(11 * time.Minute)
		if w := ask("192.0.2.9:5", rightKey); w.Code != http.StatusNoContent {
			t.Errorf("a good key, long after: %d", w.Code)
		}
	})
}

// What goes on with a key that is taken back ends within a second, and nothing
// else does. Without the ring nothing would.
func TestRevokedStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := &revocable{}
		ring, other := door.NewKeyring(key), door.NewKeyring(&revocable{})
		start := func(ring *door.Keyring) <-chan error {
			ended := make(chan error, 1)
			go func() {
				h := door.Auth(ring, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
		key.take()
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

// A table of addresses that is full drops those that are old enough, and keeps
// the others waiting.
func TestStrangersForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := door.Auth(&counted{}, http.NotFoundHandler())
		ask := func(i int) int {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)
			r.Header.Set("Authorization", fmt.Sprintf("Bearer brig_%048d", i))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		const most, last = 10_000, 9_999 // addresses that are remembered
		for i := range last {
			ask(i)
		}
		time.Sleep(10*time.Minute - 500*time.Millisecond) // just before they are forgotten
		for range 30 {
			ask(last) // has to wait a second now
		}
		time.Sleep(500 * time.Millisecond)
		ask(most) // one too many, at the very moment in which the first are old enough
		if code := ask(last); code != http.StatusTooManyRequests {
			t.Errorf("an address that has just guessed is answered %d", code)
		}
	})
}

// Bytes that no key has are not looked up, wherever in the key they are.
func TestImplausibleKeys(t *testing.T) {
	good := []byte(rightKey)
	for i := len("brig_"); i < len(good)-1; i++ { // a space at the end is none of the key's
		for _, c := range []byte{0, ' ', 0x7f, 0xff} {
			bad := append([]byte(nil), good...)
			bad[i] = c
			keys := &counted{}
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header["Authorization"] = []string{"Bearer " + string(bad)}
			w := httptest.NewRecorder()
			door.Auth(keys, http.NotFoundHandler()).ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || keys.guesses != 0 {
				t.Errorf("%q is answered %d after %d lookups", bad, w.Code, keys.guesses)
			}
		}
	}
}
