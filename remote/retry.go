package remote

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Pauses between attempts: the first pause is at most firstPause, and the
// maximum doubles with each attempt.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
)

// Retry calls f until it succeeds, up to 1+retries times. It repeats only
// temporary errors of calls that cannot have started; see brig.CanRetryElsewhere.
func Retry(ctx context.Context, log *slog.Logger, operation string, retries int, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			if attempt > 1 {
				log.InfoContext(ctx, "a call succeeded", "operation", operation, "attempts", attempt)
			}
			return nil
		}
		retryable := IsRetryable(err) && attempt <= retries && ctx.Err() == nil
		log.WarnContext(ctx, "a call failed", "operation", operation, "attempt", attempt, "again", retryable, "err", err)
		if !retryable {
			return err
		}
		if !pause(ctx, attempt, brig.AsError(err).RetryAfter) {
			return err
		}
	}
}

// IsRetryable reports whether a failed call may be repeated.
func IsRetryable(err error) bool {
	return brig.CanRetryElsewhere(err) && brig.RetryOf(err) < brig.RetryContained
}

// pause waits a random time before the next attempt, so that callers that
// failed together do not retry together. It returns false if not enough time is
// left before the deadline.
func pause(ctx context.Context, attempt int, minPause time.Duration) bool {
	maxPause := min(firstPause<<min(attempt-1, 10), longestPause)
	d := min(minPause, longestPause) + rand.N(maxPause)
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

// NewOutput converts the output in a service's response, limited to limit bytes.
func NewOutput(text []byte, limit int64) brig.Output {
	if limit <= 0 {
		limit = brig.DefaultLimitRange().Default.Output
	}
	kept := wire.NewHeadTail(int(limit))
	_, _ = kept.Write(text) // never fails
	return brig.Output(kept.Output())
}
