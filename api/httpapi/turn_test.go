package httpapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/brig-run/brig"
)

// TestLargeResponsesPerKeyAreLimited verifies that a key can receive only a limited number of large responses at the
// same time. Each of its requests gets a turn, and the requests of other keys and tenants do
// not wait.
func TestLargeResponsesPerKeyAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewLimiter(Limits{})
		begin := func(a brig.Actor) *Lease {
			l := &Lease{limiter: f}
			if err := l.Begin(a); err != nil {
				t.Fatal(err)
			}
			return l
		}
		one := brig.Actor{Tenant: "acme", Key: "k1"}
		const requests = 20
		got := make(chan func(), requests)
		for range requests {
			l := begin(one)
			go func() {
				done, err := l.WaitForTurn(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got <- done
			}()
		}
		synctest.Wait()
		if n := len(got); n != maxTurns {
			t.Fatalf("%d requests have a turn, want %d", n, maxTurns)
		}
		for _, other := range []brig.Actor{{Tenant: "acme", Key: "k2"}, {Tenant: "other", Key: "k1"}, {Tenant: "acme", Name: "a person"}} {
			done, err := begin(other).WaitForTurn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done()
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := begin(one).WaitForTurn(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled context: %v", err)
		}
		for range requests {
			(<-got)()
			synctest.Wait()
		}
		if len(f.turns) != 0 {
			t.Errorf("%d keys are left", len(f.turns))
		}
		var none *Lease
		if done, err := none.WaitForTurn(t.Context()); err != nil {
			t.Error(err)
		} else {
			done()
		}
	})
}
