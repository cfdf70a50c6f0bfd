// Package mem stores records in memory, for tests and for commands that run a
// program without a server. It implements brig.Store. Records do not outlive
// the process.
//
// The package does not depend on providers, roles or quotas. It never returns
// memory that it retains.
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
	*db
	executions
	tenancy
	tooling
	templates
	volumes
	webhooks
}

// executions stores sandboxes, their executions and their outcomes.
type executions struct{ *db }

// tenancy stores tenants, keys, sessions, settings and the audit log.
type tenancy struct{ *db }

// tooling stores secrets and the setups and variables of agents' tools.
type tooling struct{ *db }

// templates stores the templates that tenants build.
type templates struct{ *db }

// volumes stores the records of volumes.
type volumes struct{ *db }

// webhooks stores webhooks and their deliveries.
type webhooks struct{ *db }

// db holds the maps and their lock.
type db struct {
	// Now is the clock for the write times of outcomes. Set it before use.
	Now func() time.Time

	mu      sync.Mutex // guards the fields below
	records map[brig.ID]*brig.Record
	names   map[name]brig.ID
	execs   map[brig.ID]map[string]*brig.Execution
	runs    map[name]run
	keys    map[[32]byte]*brig.Key
	tenants map[string]*brig.Tenant
	usage   map[usageKey]brig.UsageTotals
	events  []brig.Event // oldest first
	chains  map[string]*chain
	secrets map[name]*brig.SealedSecret

	settings map[string]brig.Setting
	// setups and variables are keyed by ID.
	setups    map[string]*brig.ToolSetup
	variables map[string]*brig.SealedToolVariable
	// sessions are keyed by their hashes.
	sessions map[[32]byte]*brig.Session
	// built holds the templates, keyed by tenant and ID.
	built  map[name]*brig.BuiltTemplate
	builds map[buildKey]*brig.TemplateBuild
	// hooks holds the webhooks, keyed by tenant and ID.
	hooks      map[name]*brig.Webhook
	deliveries map[deliveryKey]*brig.Delivery
	// volumeRecords holds the volumes, keyed by tenant and ID.
	volumeRecords map[name]*brig.Volume
}

// name identifies an object by its tenant and its name.
type name struct{ tenant, name string }

// run is an outcome and the time at which it was written.
type run struct {
	outcome *brig.Outcome
	put     time.Time
}

var _ brig.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	s := &db{
		Now:     time.Now,
		records: map[brig.ID]*brig.Record{},
		names:   map[name]brig.ID{},
		execs:   map[brig.ID]map[string]*brig.Execution{},
		runs:    map[name]run{},
		chains:  map[string]*chain{},
		secrets: map[name]*brig.SealedSecret{},
		keys:    map[[32]byte]*brig.Key{},
		tenants: map[string]*brig.Tenant{},
		usage:   map[usageKey]brig.UsageTotals{},

		settings: map[string]brig.Setting{},

		setups:        map[string]*brig.ToolSetup{},
		variables:     map[string]*brig.SealedToolVariable{},
		sessions:      map[[32]byte]*brig.Session{},
		built:         map[name]*brig.BuiltTemplate{},
		builds:        map[buildKey]*brig.TemplateBuild{},
		hooks:         map[name]*brig.Webhook{},
		deliveries:    map[deliveryKey]*brig.Delivery{},
		volumeRecords: map[name]*brig.Volume{},
	}
	return &Store{s, executions{s}, tenancy{s}, tooling{s}, templates{s}, volumes{s}, webhooks{s}}
}

// Soon implements brig.Store. It returns s, because all writes have the same
// durability.
func (s *Store) Soon() brig.Store { return s }

// Close implements brig.Store. A Store has no resources to release.
func (s *db) Close() error { return nil }

// lock acquires the lock unless ctx is done. A canceled call therefore changes nothing, as in a
// store on disk.
func (s *db) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	return nil
}

// Append implements brig.Store.
func (s *db) Append(ctx context.Context, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.appendEvents(events)
	return nil
}

// compareNewest orders by time, then by ID, both descending.
func compareNewest[T cmp.Ordered](at, bt time.Time, a, b T) int {
	return cmp.Or(bt.Compare(at), cmp.Compare(b, a))
}
