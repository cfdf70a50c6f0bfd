package engine

import (
	"sync"
	"time"
)

// negativeTTL is how long a failure is cached, and maxNegative is the maximum number of cached
// failures.
const (
	negativeTTL = 5 * time.Minute
	maxNegative = 256
)

// negativeCache caches failed attempts, so that they are not repeated immediately.
type negativeCache struct {
	mu     sync.Mutex // guards the field below
	byName map[string]failureEntry
}

// failureEntry is the reason of a failure, and the time at which the entry
// expires.
type failureEntry struct {
	reason string
	until  time.Time
}

// reason returns the reason of a recent failure of the given name, or an empty
// string.
func (v *negativeCache) reason(name string, now time.Time) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r, ok := v.byName[name]; ok && now.Before(r.until) {
		return r.reason
	}
	return ""
}

func (v *negativeCache) add(name, reason string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byName == nil || len(v.byName) >= maxNegative {
		v.byName = map[string]failureEntry{} // a lost entry costs only one more attempt
	}
	v.byName[name] = failureEntry{reason, now.Add(negativeTTL)}
}
