package remote

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// How long is waited before a call is repeated: up to firstPause, then up to
// twice as much, and so on.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
)

// Retry calls f until it succeeds, up to 1+retries times. It repeats only what
// another try can mend and what cannot have begun; see brig.Elsewhere.
func Retry(ctx context.Context, log *slog.Logger, operation string, retries int, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			if attempt > 1 {
				log.InfoContext(ctx, "a call succeeded", "operation", operation, "attempts", attempt)
			}
			return nil
		}
		again := Repeatable(err) && attempt <= retries && ctx.Err() == nil
		log.WarnContext(ctx, "a call failed", "operation", operation, "attempt", attempt, "again", again, "err", err)
		if !again {
			return err
		}
		if !pause(ctx, attempt, brig.AsError(err).RetryAfter) {
			return err
		}
	}
}

// Repeatable reports whether what failed may be done once more.
func Repeatable(err error) bool { return brig.Elsewhere(err) && !errors.Is(err, brig.ErrBegan) }

// pause waits before the next attempt, at random, so that callers who failed
// together do not come back together. It is false if there is no time for that.
func pause(ctx context.Context, attempt int, least time.Duration) bool {
	most := min(firstPause<<min(attempt-1, 10), longestPause)
	d := min(least, longestPause) + rand.N(most)
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Output is what a service says that a program wrote, as far as limit bytes
// keep it.
func Output(text []byte, limit int64) brig.Output {
	if limit <= 0 {
		limit = brig.DefaultBounds().Default.Output
	}
	kept := wire.NewHeadTail(int(limit))
	_, _ = kept.Write(text) // it never fails
	return brig.Output(kept.Output())
}
