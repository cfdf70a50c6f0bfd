package placement

import (
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Breaker is a circuit breaker: it records whether a provider responded
// recently, so that requests do not wait for an unresponsive provider.
type Breaker struct {
	mu       sync.Mutex // guards the fields below
	failures int        // consecutive failures
	lastErr  error      // the error of the last failure
	retryAt  time.Time  // when the provider may be tried again
	checked  time.Time
}

// The breaker opens after breakAfter consecutive creation failures, and immediately if the provider
// does not respond. It stays open for breakFirst after one failure, and for twice as long after
// each further failure, up to breakMax.
const (
	breakAfter = 3
	breakFirst = 2 * time.Second
	breakMax   = 30 * time.Second
)

// Record records the outcome of a call. It reports whether this outcome has
// opened the breaker.
func (b *Breaker) Record(err error, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil || !brig.CanRetryElsewhere(err) {
		b.failures, b.lastErr, b.retryAt = 0, nil, time.Time{}
		return false
	}
	kind := brig.KindOf(err)
	if kind == brig.RateLimited {
		return false // the provider responded
	}
	b.failures++
	b.lastErr = err
	if kind == brig.CreationFailed && b.failures < breakAfter {
		return false
	}
	oldRetryAt := b.retryAt
	wait := breakMax
	if n := b.failures - 1; n < 4 {
		wait = breakFirst << n
	}
	b.retryAt = now.Add(wait)
	return oldRetryAt.IsZero()
}

// IsOpen reports whether the breaker is open. The provider must not be tried while the breaker is
// open.
func (b *Breaker) IsOpen(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Before(b.retryAt)
}

// LastFailure reports whether the last calls failed, and returns the last error.
func (b *Breaker) LastFailure() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.retryAt.IsZero(), b.lastErr
}

// StartCheckIfDue reports whether the next health check is due. If the check is due, it records its
// time, and the caller must run it.
func (b *Breaker) StartCheckIfDue(now time.Time, every time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.checked) < every {
		return false
	}
	b.checked = now
	return true
}
