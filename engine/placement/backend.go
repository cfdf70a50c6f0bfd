// Package placement holds the providers between which the engine chooses. It records the users and
// the terms of each provider, and whether the provider responds.
package placement

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// Backend is a configured provider and the number of its users.
type Backend struct {
	ID       string
	Provider brig.Provider
	RunsOnly bool // from the capabilities of the provider
	Health   Breaker

	mu      sync.Mutex // guards the fields below
	users   int        // current sandboxes and programs
	retired bool       // no new users are admitted
}

// NewBackend returns a backend without users.
func NewBackend(id string, p brig.Provider) *Backend {
	return &Backend{ID: id, Provider: p, RunsOnly: p.Capabilities().RunsOnly}
}

// Acquire counts one more user, up to maxUsers; 0 means no limit.
func (b *Backend) Acquire(maxUsers int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.retired:
		return brig.WithRetry(brig.Errorf(brig.Unavailable, "the provider %s was just changed", b.ID).WithHint("try again"), brig.RetryRoute)
	case maxUsers > 0 && b.users >= maxUsers:
		err := brig.Errorf(brig.RateLimited, "the provider %s is full: it has %d", b.ID, maxUsers).WithHint("try again in a moment, or route overflow to other providers: brig provider route")
		err.RetryAfter = time.Second
		return err
	}
	b.users++
	return nil
}

// Retain counts another use by an existing user. Release ends that use.
func (b *Backend) Retain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
}

// Release removes one user. The last user of a retired backend closes it.
func (b *Backend) Release() error {
	b.mu.Lock()
	b.users--
	idle := b.retired && b.users == 0
	b.mu.Unlock()
	if idle {
		return b.close()
	}
	return nil
}

// Retire makes the backend reject new users. Existing users keep using it until
// they end.
func (b *Backend) Retire() error {
	b.mu.Lock()
	idle := !b.retired && b.users == 0
	b.retired = true
	b.mu.Unlock()
	if idle {
		return b.close()
	}
	return nil
}

func (b *Backend) close() error {
	if c, ok := b.Provider.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Users returns the number of users.
func (b *Backend) Users() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.users
}

// Backends holds the providers of the server. The snapshot is immutable and is
// replaced as a whole, so that an administrator's change does not disturb
// running operations. The mutex is held while a caller prepares and replaces it.
type Backends struct {
	sync.Mutex
	current atomic.Pointer[Snapshot]
}

// Snapshot is a consistent view of all providers and their settings.
type Snapshot struct {
	Active   string // the ID of the active provider, or empty
	Backends map[string]*Backend
	Broken   map[string]error // configured providers that could not be opened
	Terms    map[string]brig.Terms
	Routing  map[string]brig.Routing // by tenant, "" for all tenants
	Settings map[string]brig.Setting // the settings from which the snapshot was built
}

// NewBackends returns backends with only the built-in provider.
func NewBackends(builtin *Backend, active string) *Backends {
	b := &Backends{}
	b.Replace(&Snapshot{Active: active, Backends: map[string]*Backend{builtin.ID: builtin}})
	return b
}

// Current returns the current snapshot.
func (b *Backends) Current() *Snapshot { return b.current.Load() }

// Replace replaces the snapshot. The caller holds the mutex.
func (b *Backends) Replace(next *Snapshot) { b.current.Store(next) }

// Rev returns the revision of the named settings: the time of their last change
// in microseconds, which a JSON number can hold exactly. The revision of
// settings that do not exist is constant.
func (s *Snapshot) Rev(names ...string) int64 {
	rev := int64(1)
	for _, name := range names {
		if x, ok := s.Settings[name]; ok {
			rev = max(rev, x.Updated.UnixMicro())
		}
	}
	return rev
}

// ChangeTime returns the time of a change that is made now. It is always at
// least a microsecond later than the previous change.
func (s *Snapshot) ChangeTime(now time.Time, names ...string) time.Time {
	return time.UnixMicro(max(now.UnixMicro(), s.Rev(names...)+1)).UTC()
}
