// Package e2b serves the E2B API, which E2B's own SDKs and command line use, on
// top of a brig.Service. It serves the control plane (REST), the requests to
// ports of sandboxes (by host name or by headers) and the code interpreter. The
// data plane on port 49983 is passed in as a function. COMPAT.md lists the
// supported parts of E2B.
//
// A client with a sandbox's token needs no API key. For such a client, the API
// acts as the sandbox's tenant, and only on that sandbox.
package e2b

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/observe/history"
)

// Service is the part of brig.Service that the API uses.
type Service interface {
	brig.VolumeService
	brig.WebhookService
	brig.SandboxService
	brig.LeaseService
	brig.ExecService
	brig.CodeService
	brig.GuestService
	brig.ImageService
}

// Options configure the API. Service, Keys, Owner and Seed are required.
type Options struct {
	Service Service
	Keys    httpapi.Keys
	// Owner returns the tenant of a sandbox by its id. It returns NotFound if
	// the sandbox does not exist.
	Owner func(ctx context.Context, id string) (tenant string, err error)
	// KeyActor returns the actor of a key by the key's id. It returns
	// Unauthenticated if the key is no longer valid. With KeyActor, a sandbox's
	// token belongs to the key or grant that created the sandbox or connected
	// to it. The token has no more rights than the key or grant, and becomes
	// invalid with it. Default: tokens belong to the sandbox, and only actors
	// with all rights of a member receive one.
	KeyActor func(ctx context.Context, id string) (brig.Actor, error)
	// TenantKeys lists the ids of a tenant's keys. Default: only the keys that
	// have sent requests to the API.
	TenantKeys func(ctx context.Context, tenant string) ([]string, error)
	// Seed is the secret from which the API derives the sandboxes' tokens. If
	// the seed changes, all earlier tokens become invalid.
	Seed []byte
	// Domain is the wildcard domain of the sandboxes' host names
	// ("{port}-{id}.domain"), with a port if it is not the scheme's default
	// port. If it is empty, sandboxes have no host names.
	Domain string
	// Internet lets sandboxes connect to every address unless the request
	// restricts them, as in E2B. Otherwise they connect only to the addresses
	// in their request.
	Internet bool
	// Unsecured lets the code interpreter accept requests without a token if
	// the sandbox was created without the option secure, as E2B's interpreter
	// does. Then every client that knows the sandbox's id can run code in it.
	Unsecured bool
	// Templates are the templates of the Service. Clients can also use an image
	// by its own name as a template.
	Templates []brig.Template
	// Builder builds templates. Default: templates cannot be built.
	Builder *builder.Builder
	// Envd serves port 49983 of a running sandbox. The request's context
	// contains the actor. Envd checks the sandbox's token itself.
	Envd func(w http.ResponseWriter, r *http.Request, s SandboxAccess)
	// Metrics returns the usage samples of a sandbox, oldest first.
	// Default: no samples.
	Metrics func(ctx context.Context, id string) ([]Metric, error)
	// EndedMetrics returns the usage samples of a sandbox that may have ended, oldest
	// first, and its tenant. Default: the samples end with the sandbox.
	EndedMetrics func(id string) (tenant string, all []Metric)
	// TeamMetrics returns the numbers of a tenant's sandboxes over time, oldest
	// first. Default: none.
	TeamMetrics func(tenant string) []history.Tally
	// Started counts n started sandboxes of a tenant, for TeamMetrics. Default: they
	// are not counted.
	Started func(tenant string, n int)
	// Live lists the ids of all running sandboxes of all tenants. A signed URL
	// without an id is matched against these sandboxes and against those that
	// the API has cached.
	Live func() []string
	// Existing lists the ids of all sandboxes of all tenants that run or are
	// paused. It is called once, for URLs that were signed before the server
	// started. Default: only the sandboxes that Live lists.
	Existing func(ctx context.Context) ([]string, error)
	// Clock determines whether the tokens of grants have expired. Default:
	// time.Now.
	Clock brig.Clock
	// Log is the log for the operator. Default: no log.
	Log *slog.Logger
	// Registry collects the request metrics. Default: a new registry.
	Registry *prometheus.Registry
	// Hosts are the host names of the server, in addition to loopback names, IP
	// addresses and the names under Domain.
	Hosts []string
	// LimitRange holds the limits of the Service. Default: brig.DefaultLimitRange.
	LimitRange brig.LimitRange
}

// API serves the E2B API. It consists of parts, each of which has fields for
// the lower parts that it uses. newParts connects the parts.
type API struct {
	*env
	*parts
	hosts   map[string]bool
	handler http.Handler
}

// env is the part that all other parts share: the options, the API keys, the
// cached sandbox ids, and the responses to all kinds of requests.
type env struct {
	Options
	keyring *httpapi.Keyring
	cache   sandboxCache
}

// parts are the parts of an API, lower ones first.
type parts struct {
	tokens       *tokens
	finder       *finder
	snapshots    *snapshots
	templates    *templates
	builds       *builds
	volumes      *volumes
	sandboxes    *sandboxes
	copies       *copies
	leases       *sandboxHandlers
	telemetry    *telemetry
	interpreter  *interpreter
	forwarder    *forwarder
	ports        *ports
	controlPlane *controlPlane
}

// New returns the API.
func New(o Options) *API {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = brig.WallClock(time.Now)
	}
	if o.TeamMetrics == nil {
		o.TeamMetrics = func(string) []history.Tally { return nil }
	}
	if o.Started == nil {
		o.Started = func(string, int) {}
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.LimitRange == (brig.LimitRange{}) {
		o.LimitRange = brig.DefaultLimitRange()
	}
	if len(o.Seed) == 0 {
		// With a random seed, the tokens become invalid when the process ends.
		// With an empty seed, every client could forge tokens.
		o.Seed = []byte(rand.Text())
		o.Log.Warn("e2b: without a seed, the sandboxes' tokens end with this process")
	}
	metrics, err := httpapi.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("e2b: failed to register the HTTP metrics", "error", err)
	}
	e := &env{Options: o, keyring: httpapi.NewKeyring(o.Keys)}
	a := &API{env: e, parts: newParts(e), hosts: ownHosts(o)}
	a.handler = httpapi.Wrap(o.Log, metrics, e.recoverPanics(a.dispatch))
	return a
}

// newParts returns the connected parts of an API.
func newParts(e *env) *parts {
	p := &parts{
		tokens:    &tokens{env: e},
		finder:    &finder{env: e},
		snapshots: &snapshots{env: e},
	}
	p.templates = newTemplates(e, p.snapshots)
	p.builds = &builds{env: e, tokens: p.tokens}
	p.volumes = &volumes{env: e, tokens: p.tokens}
	p.sandboxes = &sandboxes{env: e, tokens: p.tokens, finder: p.finder, templates: p.templates, snapshots: p.snapshots}
	p.copies = &copies{env: e, finder: p.finder, sandboxes: p.sandboxes}
	p.leases = &sandboxHandlers{env: e, finder: p.finder, sandboxes: p.sandboxes}
	p.telemetry = &telemetry{env: e, finder: p.finder}
	p.interpreter = &interpreter{
		env: e, tokens: p.tokens, finder: p.finder,
		keepaliveInterval: 5 * time.Second, flushDelay: defaultFlushDelay,
	}
	p.forwarder = &forwarder{env: e, tokens: p.tokens, finder: p.finder}
	p.forwarder.transport = p.forwarder.newTransport()
	p.ports = &ports{
		env: e, tokens: p.tokens, finder: p.finder, interpreter: p.interpreter, forwarder: p.forwarder,
		signatureLimit: httpapi.NewLimit(2, 20), limitedSearches: httpapi.NewSecondChance(10 * time.Second), searching: make(chan struct{}, 1),
	}
	p.controlPlane = &controlPlane{
		env: e, templates: p.templates, builds: p.builds, volumes: p.volumes, events: &events{e}, snapshots: p.snapshots, sandboxes: p.sandboxes, copies: p.copies,
		leases: p.leases, telemetry: p.telemetry,
	}
	p.controlPlane.handler = p.controlPlane.router()
	return p
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// dispatch separates requests to sandboxes from requests to the control plane.
// The control plane does not respond under a sandbox's host name.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	t, ok, err := a.target(r)
	switch {
	case err != nil:
		a.fail(w, r, err)
	case ok && !t.byHost && !a.isOwnHost(r.Host), !ok && !a.isOwnHost(r.Host):
		a.fail(w, r, httpapi.WithStatus(http.StatusMisdirectedRequest,
			brig.Errorf(brig.PermissionDenied, "the Host header has a name that is not this server's")))
	case ok:
		a.ports.serve(w, r, t)
	case isSigned(r):
		a.ports.serveSigned(w, r)
	case a.fromSandbox(r):
		a.fail(w, r, errForeignPage())
	default:
		if allowPages(w, r) {
			return // r was a CORS preflight
		}
		a.controlPlane.handler.ServeHTTP(w, r)
	}
}
