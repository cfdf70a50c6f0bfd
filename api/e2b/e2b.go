// Package e2b is the E2B door: what E2B's own SDKs and command line speak, in
// front of a brig.Service. It serves the control plane (REST), the way into
// sandboxes (by host name or by headers) and the code interpreter; the data
// plane on port 49983 is given to it as a function. COMPAT.md says what of
// E2B there is.
//
// A client that knows a sandbox's token shows no key: the door then acts for
// the sandbox's tenant, and only ever on that sandbox.
package e2b

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// Options are what the door is made of. Service, Keys, Owner and Seed are
// needed.
type Options struct {
	Service brig.Service
	Keys    door.Keys
	// Owner finds the tenant of a sandbox by its id; NotFound.
	Owner func(ctx context.Context, id string) (tenant string, err error)
	// KeyActor says whose a key is by its id, while it is good; Unauthenticated
	// otherwise. A sandbox's tokens are then those of the key or grant with which
	// it was created or connected to: they can do no more, and end with it.
	// Default: tokens are the sandbox's own, and nobody with less than all rights
	// of a member is told one.
	KeyActor func(ctx context.Context, id string) (brig.Actor, error)
	// TenantKeys lists the ids of a tenant's keys. Default: only keys that this
	// door has met are known.
	TenantKeys func(ctx context.Context, tenant string) ([]string, error)
	// Seed is the secret from which the sandboxes' tokens are made. Another
	// seed makes all tokens that were given out worthless.
	Seed []byte
	// Domain is the wildcard domain under which sandboxes have hosts
	// ("{port}-{id}.domain"), with a port if it is not the scheme's own.
	// Empty means that they have none.
	Domain string
	// Internet lets sandboxes connect to everything unless they are asked for
	// with less, as E2B's do. Otherwise they connect to what they name.
	Internet bool
	// Templates are those of the Service. An image can be used as a template by
	// its own name, too.
	Templates []brig.Template
	// Envd serves port 49983 of a sandbox that runs, with an actor in the
	// request's context. It checks the sandbox's token itself.
	Envd func(w http.ResponseWriter, r *http.Request, s SandboxAccess)
	// Metrics tells what a sandbox used lately, oldest first. Default: nothing
	// is known.
	Metrics func(ctx context.Context, id string) ([]Metric, error)
	// Live lists the ids of all sandboxes that run, of all tenants. Signed
	// URLs without an id find their sandbox among these, and among those that
	// this door has met.
	Live func() []string
	// Log is for the operator. Default: none.
	Log *slog.Logger
	// Registry collects the metrics of the requests. Default: a new one.
	Registry *prometheus.Registry
	// Hosts are the names by which clients may know the server, beside the
	// loopback ones, addresses, and those of Domain.
	Hosts []string
	// Bounds are what the Service allows. Default: brig.DefaultBounds.
	Bounds brig.Bounds
}

// Door serves E2B's protocol.
type Door struct {
	Options
	hosts     map[string]bool
	templates map[string]brig.Template
	control   http.Handler
	transport *http.Transport
	known     knownIDs
	ring      *door.Keyring
	contexts  defaultContexts
	started   time.Time
	silence   time.Duration // after which a stream of events shows that it lives
	gather    time.Duration // how long output waits for more of its stream
	handler   http.Handler
}

// New returns the door.
func New(o Options) *Door {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Bounds == (brig.Bounds{}) {
		o.Bounds = brig.DefaultBounds()
	}
	if len(o.Seed) == 0 {
		// Tokens that anybody could make would be worse than short-lived ones.
		o.Seed = []byte(rand.Text())
		o.Log.Warn("e2b: there is no seed, so the sandboxes' tokens end with this process")
	}
	metrics, err := door.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("e2b: HTTP is not measured", "error", err)
	}
	d := &Door{Options: o, ring: door.NewKeyring(o.Keys), templates: map[string]brig.Template{}, hosts: names(o), started: time.Now().UTC(), silence: 5 * time.Second, gather: gatherTime}
	for _, t := range o.Templates {
		d.templates[t.Name] = t.Fill()
	}
	d.transport = d.newTransport()
	d.control = d.router()
	d.handler = door.Wrap(o.Log, metrics, d.recovered(d.dispatch))
	return d
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// dispatch tells the sandboxes' requests from those for the control plane.
// The control plane does not answer under a sandbox's host.
func (d *Door) dispatch(w http.ResponseWriter, r *http.Request) {
	t, ok, err := d.target(r)
	switch {
	case err != nil:
		d.fail(w, r, err)
	case ok && !t.byHost && !d.isOurs(r.Host), !ok && !d.isOurs(r.Host):
		d.fail(w, r, door.WithStatus(http.StatusMisdirectedRequest,
			brig.Errorf(brig.PermissionDenied, "this server does not go by the name in the Host header")))
	case ok:
		d.inside(w, r, t)
	case isSigned(r):
		d.signed(w, r)
	case d.fromSandbox(r):
		d.fail(w, r, errForeignPage())
	default:
		if allowPages(w, r) {
			return // it was only a question
		}
		d.control.ServeHTTP(w, r)
	}
}
