package engine

import (
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// breaker remembers whether a provider answered lately, so that requests do
// not wait for one that does not.
type breaker struct {
	mu      sync.Mutex // guards the fields below
	failed  int        // in a row
	why     error      // of the last failure
	until   time.Time  // when it may be tried again
	checked time.Time
}

// What a breaker does: how many failures to make a machine open it (one that
// does not answer does at once), and for how long.
const (
	breakAfter = 3
	breakFirst = 2 * time.Second
	breakMost  = 30 * time.Second
)

// note says how a call went. It reports whether the breaker has opened by it.
func (b *breaker) note(err error, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil || !brig.Elsewhere(err) {
		b.failed, b.why, b.until = 0, nil, time.Time{}
		return false
	}
	kind := brig.KindOf(err)
	if kind == brig.RateLimited {
		return false // it answered
	}
	b.failed++
	b.why = err
	if kind == brig.CreationFailed && b.failed < breakAfter {
		return false
	}
	was := b.until
	wait := breakMost
	if n := b.failed - 1; n < 4 {
		wait = breakFirst << n
	}
	b.until = now.Add(wait)
	return was.IsZero()
}

// down reports whether there is no use in trying.
func (b *breaker) down(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Before(b.until)
}

// broke reports whether the last calls failed, and why.
func (b *breaker) broke() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero(), b.why
}

// look reports whether it is time to ask again, and notes that somebody does.
func (b *breaker) look(now time.Time, every time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.checked) < every {
		return false
	}
	b.checked = now
	return true
}
