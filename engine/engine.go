// Package engine owns the lifecycle of sandboxes: authorization, lifetimes, the
// order of operations, and the records. It is the only package that makes these
// decisions. It accesses providers, images and the store only through their
// interfaces; the server's wiring supplies the implementations.
//
// Every operation passes the gate (gate.go). The engine records a sandbox before it creates the
// instance, and deletes the record after the instance has ended. A crash therefore never leaves an
// instance without a record, and recovery ends the sandboxes of the remaining records (recover.go).
//
// Engine consists of parts, from the gate, which admits every call, up to runs,
// which run programs in their own sandboxes. A part embeds the gate, and has
// fields for the parts below it that it uses; newParts connects them.
// Operations that concern several parts (engine_calls.go, recover.go) are
// methods of Engine itself.
//
// Locks: the comment of each lock names the fields that it guards. The following locks are held
// during calls of the store, a provider or an agent, and serialize these calls: gate.tenantMu,
// images.imageMu, vault.resealMu, usage's flushMu, machines.attesting, egressSession.changing,
// process.detachMu, refusals.mu and idlePauser.mu.
package engine

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/volume"
	"github.com/brig-run/brig/workspace"
)

// Options configure an Engine.
type Options struct {
	Store brig.Store
	// Provider is the built-in provider. It is required. It creates the sandboxes in the pool, and
	// Images are its images.
	Provider brig.Provider
	// Drivers are the drivers of further providers that operators can
	// configure. DriverEnv returns the environment that the driver of a
	// provider receives.
	Drivers   []brig.Driver
	DriverEnv func(id string) brig.ProviderEnv
	// Active is the provider that is active until an operator changes the
	// setting. Default: Provider; NoProvider selects none.
	Active     string
	Images     brig.ImageStore
	LimitRange brig.LimitRange
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Clock is the clock for the expiry of keys, grants and sessions. Default: Now.
	Clock brig.Clock
	Log   *slog.Logger
	// Observer receives notifications of the engine's actions. Default: none.
	Observer brig.Observer
	// Rates are the prices of executions, by provider name. A provider without
	// an entry has the prices of its terms.
	Rates map[string]brig.Rate
	// HealthCheckInterval is the interval at which a test program checks that the provider works.
	// Default: never.
	HealthCheckInterval time.Duration
	// Alerts returns the current alerts. Default: none.
	Alerts func() []brig.Alert
	// RunRetention is how long the outcome of a one-shot can be fetched again.
	// Default 1 hour.
	RunRetention time.Duration
	// EndedRetention is how long the record and the logs of a sandbox are kept after
	// its end. Default: 24 hours.
	EndedRetention time.Duration
	// PackAfter is how long a sandbox is paused before its save is compressed and
	// encrypted, if there are Keys. Default: 1 minute; a negative value disables it.
	PackAfter time.Duration
	// Retention limits how much data of ended sandboxes is kept. Default: brig.DefaultKeep.
	Retention brig.Keep
	// TypeScript compiles TypeScript to JavaScript. If it is nil, TypeScript is
	// not supported.
	TypeScript TypeScript
	// Screen rejects code before it starts; the error is returned to the caller. TypeScript is
	// screened as the compiled JavaScript. ctx carries the actor. If Screen is nil, all code may
	// run.
	Screen func(ctx context.Context, lang brig.Language, source string) error
	// ScreenTenant applies a tenant's own rules, after Screen. If it is nil,
	// tenants cannot have rules.
	ScreenTenant func(ctx context.Context, rules *brig.Screening, lang brig.Language, source string) error
	// Capacity limits concurrent creations.
	Capacity capacity.Options
	// Streams limits long-lived connections into sandboxes.
	Streams StreamLimits
	// Pool configures the pool of ready sandboxes; the zero value disables the
	// pool.
	Pool PoolOptions
	// Egress limits the destinations that sandboxes may connect to.
	Egress EgressOptions
	// Require is the minimum enforcement that every sandbox must have.
	Require brig.Requirement
	// Templates are the templates that Spec.Template can name.
	Templates []brig.Template
	// BuildMissing makes the engine build a template's image on first use, if
	// the template has packages.
	BuildMissing bool
	// Keys is the keyring for the encryption of stored secrets. If it is nil, secrets are not
	// supported.
	Keys *seal.Keyring
	// Seed is the secret from which placeholders of secrets are derived. It
	// must not be disclosed, and must not change.
	Seed []byte
	// Workspaces stores directories that outlive sandboxes. If it is nil,
	// workspaces are not supported.
	Workspaces *workspace.Store
	// Volumes keeps the data of volumes. If it is nil, volumes are not supported.
	Volumes *volume.Store
	// VolumeSize is the size of a volume that is created without one, in bytes. Default:
	// brig.DefaultVolumeSize.
	VolumeSize int64
	// PrivateWebhooks permits webhooks at addresses of this host and of private networks, and without
	// TLS.
	PrivateWebhooks bool
	// SaveEvery is how often a workspace in direct mode is saved while its
	// sandbox runs. Default: 5 minutes; a negative value disables it.
	SaveEvery time.Duration
	// Tools configures how agents' tools run.
	Tools ToolOptions
	// AuditKey, if set, signs the head of the audit log.
	AuditKey ed25519.PrivateKey
	// AuditRetention is how long lines of the audit log are kept. Default: forever.
	AuditRetention time.Duration
	// AuditLines is the maximum number of audit log lines per tenant. Default
	// unlimited.
	AuditLines int64
	// KeyInFile returns the file in the data folder that holds the key with the given ID, and the
	// key's name on the command line. It returns empty strings if there is no such file. Each start
	// of the server recreates these keys.
	KeyInFile func(id string) (file, name string)
	// Region is the location of this server, for the log.
	Region string
	// Quota applies to tenants that are created without one. Default
	// brig.DefaultQuota.
	Quota brig.Quota
	// GrantSeed is the secret that grants are signed with. If it is empty,
	// grants are not supported.
	GrantSeed []byte
	// Users authenticates persons who sign in through an identity provider. If
	// it is nil, callers can use only keys.
	Users Users
	// SessionIdle is the time after which an unused session ends, and
	// SessionLife is the time after which every session ends. Default: 8 and 24
	// hours.
	SessionIdle, SessionLife time.Duration
}

// Engine implements brig.Service on top of a store, a provider and images. Each
// of its parts owns one concern, and has fields for the parts below it that it
// uses.
type Engine struct {
	*env
	*gate
	*vault
	*images
	*network
	*providers
	*workspaces
	*volumes
	*hooks
	*identity
	*lifecycle
	*programs
	*interpreters
	*pauser
	*machines
	*forks
	*tools
	*runs
}

var _ brig.Service = (*Engine)(nil)

// New returns an Engine. Recover must be called before it manages the instances of an earlier
// Engine.
func New(ctx context.Context, o Options) *Engine {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = brig.WallClock(o.Now)
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
	o.Retention = o.Retention.OrDefault()
	if o.VolumeSize == 0 {
		o.VolumeSize = brig.DefaultVolumeSize
	}
	if o.SaveEvery == 0 {
		o.SaveEvery = saveInterval
	}
	if o.RunRetention == 0 {
		o.RunRetention = time.Hour
	}
	if o.EndedRetention == 0 {
		o.EndedRetention = 24 * time.Hour
	}
	if o.PackAfter == 0 {
		o.PackAfter = defaultPackAfter
	}
	e := newParts(ctx, o)
	e.builtinID = o.Provider.Capabilities().Name
	e.backends = placement.NewBackends(placement.NewBackend(e.builtinID, o.Provider), e.initialActive())
	e.fillTemplates(o.Templates)
	e.guardImages()
	return e
}

// newParts returns an Engine whose parts are connected.
func newParts(ctx context.Context, o Options) *Engine {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	e := &Engine{env: &env{Options: o, ctx: ctx, cancel: end, capacity: capacity.New(o.Capacity), relays: output.NewRelays(output.TenantBudget, output.ServerBudget), messages: output.NewBudget(tenantMessageBudget, serverMessageBudget)}}
	g := &gate{env: e.env}
	e.gate = g
	e.vault = &vault{gate: g}
	e.images = &images{gate: g, builds: map[string]*build{}}
	e.network = &network{gate: g, vault: e.vault, limiter: egress.DefaultConnLimiter()}
	e.providers = &providers{gate: g, vault: e.vault, images: e.images}
	e.workspaces = &workspaces{gate: g}
	e.volumes = &volumes{gate: g, changes: newCtxMutex(), holds: map[string]int{}, lastHold: map[string]int{}}
	e.hooks = &hooks{gate: g}
	e.identity = &identity{
		gate: g, network: e.network,
		usedKeys: map[string]time.Time{}, touchedKeys: map[string]time.Time{},
		usedSessions: map[string]time.Time{}, touchedSessions: map[string]time.Time{},
	}
	open := newStreams(o.Streams)
	e.lifecycle = &lifecycle{gate: g, network: e.network, providers: e.providers, workspaces: e.workspaces, streams: open}
	e.programs = &programs{gate: g, vault: e.vault, lifecycle: e.lifecycle, streams: open}
	e.interpreters = &interpreters{gate: g, vault: e.vault, lifecycle: e.lifecycle, programs: e.programs}
	e.pauser = &pauser{
		gate: g, network: e.network, providers: e.providers, lifecycle: e.lifecycle, programs: e.programs,
		interpreters: e.interpreters,
		packs:        &packs{gate: g, vault: e.vault, providers: e.providers, waiting: map[brig.ID]packJob{}},
	}
	e.lifecycle.resumePaused, e.lifecycle.pauseExpired, e.lifecycle.recordLateSave = e.pauser.resumePaused, e.pauser.pauseExpired, e.pauser.recordLateSave
	e.lifecycle.pauseIdle = e.pauser.pauseIdle
	e.machines = &machines{
		gate: g, vault: e.vault, images: e.images, network: e.network, providers: e.providers, workspaces: e.workspaces,
		lifecycle: e.lifecycle, programs: e.programs,
	}
	e.pauser.machines = e.machines
	e.forks = &forks{
		gate: g, vault: e.vault, network: e.network, providers: e.providers, lifecycle: e.lifecycle, interpreters: e.interpreters,
		volumes: e.volumes, pauser: e.pauser, machines: e.machines, origins: map[brig.ID]*sharedOrigin{},
	}
	e.machines.pool = newPool(e.machines, o.Pool)
	e.machines.boots = newBoots(e)
	e.tools = &tools{
		gate: g, vault: e.vault, images: e.images, providers: e.providers, lifecycle: e.lifecycle, interpreters: e.interpreters,
		machines: e.machines,
	}
	e.runs = &runs{
		gate: g, vault: e.vault, images: e.images, providers: e.providers, workspaces: e.workspaces, volumes: e.volumes,
		lifecycle: e.lifecycle, programs: e.programs, interpreters: e.interpreters, machines: e.machines, tools: e.tools,
	}
	g.endError, e.images.unpool = e.lifecycle.endError, e.pool.dropImage
	return e
}

// closeTimeout is how long Close waits for running calls to complete.
const closeTimeout = 5 * time.Second

// Close waits for running calls, and ends the background work of the engine.
// Instances continue to run.
func (e *Engine) Close() {
	idle := make(chan struct{})
	go func() {
		e.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
	}
	e.cancel()
	e.background.Wait()
	e.pool.empty()
	ctx, cancel := detachedContext(e.ctx)
	defer cancel()
	e.awaitImageRemovals(ctx)
	e.writeRejections(ctx)
	if err := e.flushUsage(ctx); err != nil {
		e.Log.Error("failed to write the usage", "err", err)
	}
}

// cleanupTimeout is the maximum duration of work that continues after its caller
// has disconnected.
const cleanupTimeout = 30 * time.Second

// detachedContext returns a context for work that must complete even if the caller
// disconnects.
func detachedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// Live returns the IDs of all sandboxes that have an instance, of every tenant. It is only for the
// server's own wiring, and must not be exposed to callers.
func (e *Engine) Live() []string {
	out := []string{}
	e.sandboxes.updateEach(func(id brig.ID, s *sandbox) {
		if s.instance != nil {
			out = append(out, string(id))
		}
	})
	return out
}

// Measure returns the usage of a live sandbox of any tenant. It is only for the server's own
// wiring, and must not be exposed to callers. It returns Unimplemented if the provider cannot measure
// a sandbox without a request to another service.
func (e *Engine) Measure(ctx context.Context, id string) (*brig.Usage, error) {
	in := e.sandboxes.get(brig.ID(id)).instance
	if in == nil {
		return nil, brig.Errorf(brig.NotFound, "sandbox %q does not run", id)
	}
	disk, ok := in.(brig.DiskMeter)
	if !ok {
		return nil, brig.Errorf(brig.Unimplemented, "the provider does not measure usage on this machine")
	}
	u, err := in.Usage(ctx)
	if err != nil {
		return nil, err
	}
	u.Disk = disk.DiskUsed(ctx)
	return u, nil
}
