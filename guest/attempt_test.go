package guest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Callers share one attempt, which outlives its first caller and has a time limit. A later call
// starts a new attempt.
func TestAttemptsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Attempts[int]
		calls := 0
		f := func(ctx context.Context) (int, error) {
			calls++
			select {
			case <-time.After(time.Second):
				return calls, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		first, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := a.Do(first, time.Minute, f); !errors.Is(err, context.Canceled) {
				t.Errorf("who goes: %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			all.Go(func() {
				if n, err := a.Do(t.Context(), time.Minute, f); n != 1 || err != nil {
					t.Errorf("who waits: %d, %v", n, err)
				}
			})
		}
		cancel()
		all.Wait()
		if _, err := a.Do(t.Context(), time.Millisecond, f); !errors.Is(err, context.DeadlineExceeded) || calls != 2 {
			t.Errorf("later: %v, after %d", err, calls)
		}
	})
}
