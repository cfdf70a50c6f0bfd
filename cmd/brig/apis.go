package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/admin"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/kernels"
	"github.com/brig-run/brig/api/letta"
	"github.com/brig-run/brig/api/mcp"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/version"
	"github.com/brig-run/brig/signin"
	"github.com/brig-run/brig/ui"
)

// The E2B API keeps two files in the data folder: an API key for its clients, and the seed of the
// sandboxes' tokens.
const (
	e2bKeyFile  = "e2b.key"
	e2bSeedFile = "e2b.seed"
)

// apis dispatches requests to the APIs of the server: those for E2B,
// administrators, agents' tools, kernel gateways and Letta's tools, the
// console, and the native API for all other requests.
type apis struct {
	e2b      *e2b.API
	others   []otherAPI // the first match serves the request
	native   http.Handler
	link     *signInLink
	registry *prometheus.Registry
	close    func() // stops background work
}

type otherAPI struct {
	matches func(*http.Request) bool
	http.Handler
}

// ServeHTTP implements http.Handler.
func (d *apis) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.e2b.Matches(r) {
		d.e2b.ServeHTTP(w, r)
		return
	}
	for _, o := range d.others {
		if o.matches(r) {
			o.ServeHTTP(w, r)
			return
		}
	}
	d.native.ServeHTTP(w, r)
}

// apiAccess defines how clients reach the APIs: the host names, the sign-in methods besides API
// keys, and the clock that determines when credentials expire.
type apiAccess struct {
	hosts  []string
	signIn *signin.Provider
	clock  brig.Clock
}

// openAPIs creates the APIs of an engine.
func openAPIs(ctx context.Context, dir string, cfg *config, e *engine.Engine, store brig.Store, seen *prometheus.Registry, in apiAccess, log *slog.Logger) (*apis, error) {
	templates, err := cfg.templates()
	if err != nil {
		return nil, err
	}
	seed, err := e2bSecrets(ctx, dir, store)
	if err != nil {
		return nil, err
	}
	notebooks, err := cfg.Kernels.options()
	if err != nil {
		return nil, err
	}
	builds, err := newBuilder(ctx, dir, cfg, e, store, templates, log)
	if err != nil {
		return nil, err
	}
	service := builder.Compose(e, builds)
	used, clock := newMeter(e, store), in.clock
	// All APIs share one keyring, so that failed attempts and blocked addresses count across all of
	// them.
	ring := httpapi.NewKeyring(e)
	ring.Cookie.Secure = strings.HasPrefix(cfg.URL, "https://")
	ring.Clock, ring.Owner = clock, folderOwner(dir, e)
	tools, err := mcp.New(ctx, mcp.Options{Service: service, Keys: ring, Log: log, Registry: seen, Hosts: in.hosts, Version: version.String()})
	if err != nil {
		return nil, err
	}
	link := &signInLink{service: e, key: func() string { return readKey(dir) }, cookies: ring.Cookie, clock: clock, actor: ring.Owner}
	data := envd.New(envd.Options{Service: e, Log: log, Metrics: used.sandboxMetrics, Clock: clock})
	notebooks.Service, notebooks.Keys, notebooks.Log, notebooks.Registry = e, ring, log, seen
	notebooks.LimitRange, notebooks.Hosts = cfg.limitRange(), in.hosts
	gateway := kernels.New(notebooks)
	recording, stopRecording := context.WithCancel(ctx)
	var recorder sync.WaitGroup
	recorder.Go(func() { used.history.Run(recording) })
	return &apis{
		close: func() {
			stopRecording()
			recorder.Wait()
			builds.Close()
			tools.Close()
			gateway.Close()
			data.Close()
		}, registry: seen, link: link,
		others: []otherAPI{
			{link.matches, link.handler(in.hosts, log)},
			{admin.Matches, admin.New(admin.Options{Service: e, Keys: ring, Log: log, Hosts: in.hosts})},
			{mcp.Matches, tools},
			{kernels.Matches, gateway},
			{letta.Matches, letta.New(letta.Options{Service: e, Keys: ring, Log: log, Hosts: in.hosts, Registry: seen})},
			{ui.IsConsoleRequest, ui.New(log, in.hosts, ui.Settings{SignIn: in.signIn != nil})},
			{ui.IsDocsRequest, ui.NewDocs(log, in.hosts)},
		},
		native: rest.New(rest.Options{
			Registry: seen, Service: service, Builds: builds, Keys: ring, Log: log, Hosts: in.hosts, Version: version.String(), LimitRange: cfg.limitRange(), SignIn: in.signIn,
			Ready: func(ctx context.Context) error { _, err := store.Events(ctx, 1); return err },
		}),
		e2b: e2b.New(e2b.Options{
			Registry: seen, Service: e, Keys: ring, KeyActor: e.KeyByID, TenantKeys: keysOf(store), Clock: clock,
			Log: log, Hosts: in.hosts, LimitRange: cfg.limitRange(),
			Domain: cfg.E2B.Domain, Internet: cfg.E2B.Internet, Unsecured: cfg.E2B.Unsecured, Templates: templates, Builder: builds, Seed: seed, Live: e.Live, Existing: listLasting(store), Metrics: used.controlMetrics,
			EndedMetrics: used.endedMetrics, TeamMetrics: used.history.Tenant, Started: used.history.Started,
			Owner: func(ctx context.Context, id string) (string, error) { return store.Owner(ctx, brig.ID(id)) },
			Envd: func(w http.ResponseWriter, r *http.Request, s e2b.SandboxAccess) {
				data.Serve(w, r, envd.Sandbox{ID: s.ID, Token: s.Token, Env: s.Env, User: s.User, Dir: s.Dir})
			},
		}),
	}, nil
}

// uploadsDir is the directory of files for builds of templates, in the data folder.
const uploadsDir = "uploads"

// newBuilder returns the builder of the tenants' templates. The steps of builds reach the package
// indexes that tools reach, or every address where E2B's clients do.
func newBuilder(ctx context.Context, dir string, cfg *config, e *engine.Engine, store brig.Store, configured []brig.Template, log *slog.Logger) (*builder.Builder, error) {
	rules := allowHosts(cfg.Tools.Packages.Hosts)
	if cfg.E2B.Internet {
		rules = e2b.OpenEgress()
	}
	return builder.New(ctx, builder.Options{
		Service: engine.BuildService{Engine: e}, Store: store, Dir: filepath.Join(dir, uploadsDir), Configured: configured, Egress: rules,
		Actor: e.KeyByID, Log: log,
	})
}

// e2bSecrets creates or reads the API key for E2B clients and the seed of tokens. The API key has
// the format that older clients require.
func e2bSecrets(ctx context.Context, dir string, store brig.Store) (seed []byte, err error) {
	text, err := readSecretFile(filepath.Join(dir, e2bSeedFile), "the seed of E2B's tokens", func() string { return randomHex(32) })
	if err != nil {
		return nil, err
	}
	return []byte(text), keyFileSpecs()[1].make(ctx, dir, store)
}

// keysOf returns a function that lists the IDs of a tenant's keys.
func keysOf(store brig.Store) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, tenant string) (ids []string, err error) {
		list, err := store.ListKeys(ctx, tenant)
		for _, k := range list {
			ids = append(ids, k.ID)
		}
		return ids, err
	}
}

// listLasting returns a function that lists the IDs of running and paused sandboxes.
func listLasting(store brig.Store) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (ids []string, err error) {
		err = store.All(ctx, func(r *brig.Record) error {
			if r.State.IsActive() {
				ids = append(ids, string(r.ID))
			}
			return nil
		})
		return ids, err
	}
}

// randomHex returns n random bytes in hexadecimal.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// serveTLS serves E2B clients on a separate address until the returned function is called. If no
// address is configured, serveTLS does not listen.
func (d *apis) serveTLS(cfg *config, front *httpapi.Limiter, tracer trace.Tracer, log *slog.Logger) (stop func(), err error) {
	if cfg.E2B.Listen == "" {
		return func() {}, nil
	}
	// Load the certificate now. ServeTLS would report a load error only in the background, where it
	// can only be logged.
	if _, err := tls.LoadX509KeyPair(cfg.E2B.Cert, cfg.E2B.Key); err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "e2b.cert and e2b.key are not a certificate and its key").
			WithHint("give two PEM files: the certificate for *.domain, and its key").Because(err)
	}
	ln, err := net.Listen("tcp", cfg.E2B.Listen)
	if err != nil {
		return nil, newListenError(cfg.E2B.Listen, "e2b.listen", err)
	}
	srv, err := cfg.newHTTPServer(d.e2b, front, tracer, log)
	if err != nil {
		return nil, err
	}
	log.Info("serving E2B's clients", "address", ln.Addr().String(), "domain", cfg.E2B.Domain)
	return serveInBackground(srv, func() error { return srv.ServeTLS(ln, cfg.E2B.Cert, cfg.E2B.Key) }, "serve E2B's clients", log), nil
}

// serveInBackground serves in the background until the returned function is called.
func serveInBackground(srv *http.Server, serve func() error, what string, log *slog.Logger) (stop func()) {
	go func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			log.Error(what, "err", err)
		}
	}()
	return func() { _ = srv.Close() }
}
