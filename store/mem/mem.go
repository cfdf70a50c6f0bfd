// Package mem keeps records in memory: for tests, and for a command that runs
// a program without a server. It implements brig.Store, of which "durable"
// means here: until Close.
//
// It owns the maps and their lock. It knows nothing of providers, roles or
// quotas, and it never hands out memory that it keeps.
package mem

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Store implements brig.Store. Its zero value is not usable; call New.
type Store struct {
	// Now is the clock that PutRun dates outcomes with. Set it before use.
	Now func() time.Time

	mu      sync.Mutex // guards the fields below
	records map[brig.ID]*brig.Record
	names   map[name]brig.ID
	execs   map[brig.ID]map[string]*brig.Execution
	runs    map[name]run
	keys    map[[32]byte]*brig.Key
	tenants map[string]*brig.Tenant
	usage   map[line]brig.Spent
	events  []brig.Event // oldest first
	chains  map[string]*chain
	secrets map[name]*brig.SealedSecret

	settings map[string]brig.Setting
	// setups and variables of tools are by their ids.
	setups    map[string]*brig.ToolSetup
	variables map[string]*brig.SealedToolVariable
	// sessions are by their hashes.
	sessions map[[32]byte]*brig.Session
}

// name is a name within its tenant.
type name struct{ tenant, name string }

// run is an outcome and when it was put.
type run struct {
	outcome *brig.Outcome
	put     time.Time
}

var _ brig.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{
		Now:     time.Now,
		records: map[brig.ID]*brig.Record{},
		names:   map[name]brig.ID{},
		execs:   map[brig.ID]map[string]*brig.Execution{},
		runs:    map[name]run{},
		chains:  map[string]*chain{},
		secrets: map[name]*brig.SealedSecret{},
		keys:    map[[32]byte]*brig.Key{},
		tenants: map[string]*brig.Tenant{},
		usage:   map[line]brig.Spent{},

		settings: map[string]brig.Setting{},

		setups:    map[string]*brig.ToolSetup{},
		variables: map[string]*brig.SealedToolVariable{},
		sessions:  map[[32]byte]*brig.Session{},
	}
}

// Soon implements brig.Store: nothing here is more durable than anything else.
func (s *Store) Soon() brig.Store { return s }

// Close implements brig.Store. There is nothing to release.
func (s *Store) Close() error { return nil }

// enter takes the lock unless ctx has ended, so that a caller who went away
// changes nothing, as with a store on disk.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	return nil
}

// Append implements brig.Store.
func (s *Store) Append(ctx context.Context, events ...brig.Event) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.note(events)
	return nil
}

// newest orders by time, then by id, the newest and greatest first.
func newest[T cmp.Ordered](at, bt time.Time, a, b T) int {
	return cmp.Or(bt.Compare(at), cmp.Compare(b, a))
}
