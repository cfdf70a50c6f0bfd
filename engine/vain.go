package engine

import (
	"sync"
	"time"
)

// vainTime is how long it is remembered that something could not be done, and
// maxVain of how much.
const (
	vainTime = 5 * time.Minute
	maxVain  = 256
)

// vain remembers what was tried in vain, so that it is not tried again at once.
type vain struct {
	mu sync.Mutex // guards the field below
	by map[string]refusal
}

// refusal is why something could not be done, and until when that counts.
type refusal struct {
	said  string
	until time.Time
}

// of is what was said, if something was tried in vain not long ago.
func (v *vain) of(name string, now time.Time) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r, ok := v.by[name]; ok && now.Before(r.until) {
		return r.said
	}
	return ""
}

func (v *vain) add(name, said string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by == nil || len(v.by) >= maxVain {
		v.by = map[string]refusal{} // what is forgotten is tried again, no more
	}
	v.by[name] = refusal{said, now.Add(vainTime)}
}
