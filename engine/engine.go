// Package engine owns the life of sandboxes: who may do what, for how long,
// in which order things happen, and what is written down about it. It is the
// only package that decides. It knows providers, images and the store by
// their interfaces alone; wiring gives it some.
//
// Every operation passes the gate (gate.go). A machine is recorded before it
// is made and forgotten after it is gone, so that a crash leaves a record
// that recovery can end (recover.go) and never a machine that nobody knows
// of.
//
// Locks: Engine.mu guards the list of live machines and is held for no call
// that leaves the package. Engine.imageUse is held over the moment in which an
// image is resolved and recorded, so that its removal sees every user of it.
// Engine.tenancy is held over changes of tenants and keys, account.mu over the
// sums of one tenant.
package engine

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/workspace"
)

// Options are what an Engine is made of.
type Options struct {
	Store brig.Store
	// Provider is the one that is always there: whatever waits in the pool is
	// made by it, and the images are its.
	Provider brig.Provider
	// Drivers are the kinds of which providers can be configured beside it, and
	// Site what each is given.
	Drivers []brig.Driver
	Site    func(id string) brig.Site
	// Active is the provider that is active until a setting says otherwise.
	// Default Provider's; NoProvider is none.
	Active string
	Images brig.ImageStore
	Bounds brig.Bounds
	// Now is the clock. Default time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Observer is told what happens. Default nobody.
	Observer brig.Observer
	// Rates are what providers ask for executions, by their names. One that is
	// not there costs nothing.
	Rates map[string]brig.Rate
	// Trial is how often a program is run for nothing but to see whether the
	// provider works. Default never.
	Trial time.Duration
	// Alerts says what alerts there are. Default none, ever.
	Alerts func() []brig.Alert
	// KeepRuns is how long the outcome of a one-shot can be fetched again.
	// Default 1 hour.
	KeepRuns time.Duration
	// KeepEnded is how long the record and the logs of a sandbox stay after
	// its end. Default 24 hours.
	KeepEnded time.Duration
	// TypeScript turns TypeScript into JavaScript. Without it there is none.
	TypeScript TypeScript
	// Screen refuses code before anything starts, with an error that the caller
	// sees. TypeScript comes to it as the JavaScript that it becomes. The actor
	// is in ctx. Without it all code may run.
	Screen func(ctx context.Context, lang brig.Language, source string) error
	// ScreenBy is Screen by a tenant's own rules, after Screen. Without it no
	// tenant can have any.
	ScreenBy func(ctx context.Context, rules *brig.Screening, lang brig.Language, source string) error
	// Capacity bounds what goes on at once.
	Capacity Capacity
	// Pool is what waits to be used; the zero value is no pool.
	Pool PoolOptions
	// Egress bounds where sandboxes may connect to.
	Egress EgressOptions
	// Require is the least that every sandbox must be held to.
	Require brig.Requirement
	// Templates are what Spec.Template can name.
	Templates []brig.Template
	// BuildMissing has the image of a template that has packages built when it
	// is first wanted.
	BuildMissing bool
	// Keys are those that secrets are kept under. Without them there are none.
	Keys *seal.Keyring
	// Seed is what placeholders of secrets are made from. Nobody may know it,
	// and it must stay.
	Seed []byte
	// Workspaces are directories that outlive sandboxes. Without it there are
	// none.
	Workspaces *workspace.Store
	// Tools says how agents' tools are run.
	Tools ToolOptions
	// AuditKey signs the head of the audit log, if there is one.
	AuditKey ed25519.PrivateKey
	// KeepAudit is how long lines of the audit log stay. Default for ever.
	KeepAudit time.Duration
	// Region is where this is, for the log.
	Region string
	// Quota is that of tenants that are made without one. Default
	// brig.DefaultQuota.
	Quota brig.Quota
	// GrantSeed is the secret with which grants are signed. Without it there
	// are none.
	GrantSeed []byte
	// People are those who sign in by an identity provider. Without it there
	// are only keys.
	People People
	// SessionIdle is after how long a session ends that nobody uses, and
	// SessionLife after how long every one does. Default 8 and 24 hours.
	SessionIdle, SessionLife time.Duration
}

// Engine implements brig.Service over a store, a provider and images.
type Engine struct {
	Options
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // what goes on in the background, waited for by Close
	// visits are calls that are inside, waited for by Close for a while.
	visits sync.WaitGroup

	imageUse sync.RWMutex
	looked   atomic.Int64 // processes that are looked after
	capacity *capacity
	pool     *pool
	room     *egress.Room // for connections of all sandboxes
	boxes    boxes
	fleet    *fleet
	homeID   string // the id of Options.Provider
	// templates have their defaults, and are never changed.
	templates map[string]brig.Template
	notes     egressNotes
	sights    sights
	tally     tally
	// sealing is held for writing while secrets are encrypted anew.
	sealing  sync.RWMutex
	prunedAt time.Time // of housekeep's

	accounts sync.Map   // of tenants, *account by name
	tenancy  sync.Mutex // held while tenants and keys change, and accounts are read
	flushing sync.Mutex // held while what was used is written

	mu        sync.Mutex // guards the fields below
	live      map[brig.ID]brig.Instance
	contexts  map[brig.ID]*contexts
	processes map[brig.ID]*processes
	sleepers  map[brig.ID]*sleeper
	ways      map[brig.ID]*way
	unwanted  map[brig.ID]*brig.Record  // that could not be forgotten
	doomed    map[brig.ID]brig.Instance // that did not go when they were told to
	builds    map[string]*build         // by the images' names
	leaving   map[brig.ID]int           // that somebody is ending, how many do
	seats     map[brig.ID]*seat         // of live sandboxes in their tenants' quotas
	places    map[brig.ID]*member       // where live sandboxes are
	usedKeys  map[string]time.Time      // when, by id; not yet written
	touched   map[string]time.Time      // when that was last noted
	// usedSessions and touchedSessions are the same of sessions.
	usedSessions, touchedSessions map[string]time.Time
}

var _ brig.Service = (*Engine)(nil)

// New returns an Engine. Until Recover has been called it knows nothing of
// machines that an earlier one made.
func New(ctx context.Context, o Options) *Engine {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.TypeScript == nil {
		o.TypeScript = noTypeScript{}
	}
	if o.Quota == (brig.Quota{}) {
		o.Quota = brig.DefaultQuota()
	}
	if o.SessionIdle == 0 {
		o.SessionIdle = 8 * time.Hour
	}
	if o.SessionLife == 0 {
		o.SessionLife = 24 * time.Hour
	}
	if o.KeepRuns == 0 {
		o.KeepRuns = time.Hour
	}
	if o.KeepEnded == 0 {
		o.KeepEnded = 24 * time.Hour
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	e := &Engine{
		Options: o, ctx: ctx, end: end, capacity: newCapacity(o.Capacity),
		live: map[brig.ID]brig.Instance{}, contexts: map[brig.ID]*contexts{}, processes: map[brig.ID]*processes{}, sleepers: map[brig.ID]*sleeper{}, ways: map[brig.ID]*way{}, doomed: map[brig.ID]brig.Instance{}, unwanted: map[brig.ID]*brig.Record{},
		leaving: map[brig.ID]int{}, seats: map[brig.ID]*seat{}, places: map[brig.ID]*member{}, usedKeys: map[string]time.Time{}, touched: map[string]time.Time{},
		usedSessions: map[string]time.Time{}, touchedSessions: map[string]time.Time{},
	}
	e.homeID = o.Provider.Capabilities().Name
	e.fleet = newFleet(newMember(e.homeID, o.Provider), e.firstActive())
	e.pool, e.room = newPool(e, o.Pool), egress.RoomHere()
	e.builds = map[string]*build{}
	e.fillTemplates(o.Templates)
	e.guardImages()
	return e
}

// closeTime is how long Close waits for calls whose callers have gone: they
// end what they began.
const closeTime = 5 * time.Second

// Close waits for calls to end what they began, and ends what the engine does
// in the background. Machines go on.
func (e *Engine) Close() {
	left := make(chan struct{})
	go func() {
		e.visits.Wait()
		close(left)
	}()
	select {
	case <-left:
	case <-time.After(closeTime):
	}
	e.end()
	e.work.Wait()
	e.pool.empty()
	ctx, cancel := cleanup(e.ctx)
	defer cancel()
	if err := e.flushUsage(ctx); err != nil {
		e.Log.Error("write what was used", "err", err)
	}
}

// cleanupTime bounds work that goes on after its caller has gone.
const cleanupTime = 30 * time.Second

// cleanup returns a context for work that must be done although the caller
// may have gone.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// instance returns the live machine of a sandbox, nil if it has none.
func (e *Engine) instance(id brig.ID) brig.Instance {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[id]
}

// gone reports whether a machine has ended.
func gone(in brig.Instance) bool {
	select {
	case <-in.Done():
		return true
	default:
		return false
	}
}

// awaitEnd gives a machine in which something broke the time to turn out to have
// ended.
func (e *Engine) awaitEnd(ctx context.Context, in brig.Instance, most time.Duration) {
	select {
	case <-in.Done():
	case <-time.After(most):
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
}

// adopt takes a machine into the list, of which at has one more user, and
// watches for its end.
func (e *Engine) adopt(r *brig.Record, at *member, in brig.Instance) {
	e.mu.Lock()
	e.live[r.ID], e.places[r.ID] = in, at
	e.mu.Unlock()
	e.watchWorkspace(r, in)
	id, tenant := r.ID, r.Tenant
	e.work.Go(func() {
		select {
		case <-e.ctx.Done():
		case <-in.Done():
			ctx, cancel := cleanup(e.ctx)
			defer cancel()
			if _, err := e.settle(ctx, tenant, id, in); err != nil && brig.KindOf(err) != brig.NotFound {
				e.Log.Error("record the end of a sandbox", "sandbox", id, "err", err)
			}
		}
	})
}

// drop takes a machine out of the list.
func (e *Engine) drop(id brig.ID) {
	e.countLast(id)
	e.mu.Lock()
	cs, s, w := e.contexts[id], e.sleepers[id], e.ways[id]
	delete(e.live, id)
	delete(e.contexts, id)
	delete(e.processes, id)
	delete(e.sleepers, id)
	delete(e.ways, id)
	p, at := e.seats[id], e.places[id]
	delete(e.seats, id)
	delete(e.places, id)
	e.mu.Unlock()
	e.left(at)
	w.close()
	cs.close()
	s.end()
	p.end()
}

// Live lists the sandboxes that have a machine, of all tenants. It is for the
// wiring: what it lists, callers must not see.
func (e *Engine) Live() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]string, 0, len(e.live))
	for id := range e.live {
		out = append(out, string(id))
	}
	return out
}
