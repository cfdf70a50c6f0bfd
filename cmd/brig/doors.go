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

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/admin"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/api/kernels"
	"github.com/brig-run/brig/api/letta"
	"github.com/brig-run/brig/api/mcp"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/signin"
	"github.com/brig-run/brig/ui"
)

// The files of the E2B door in the data folder: a key for its clients, and
// what the sandboxes' tokens are made of.
const (
	e2bKeyFile  = "e2b.key"
	e2bSeedFile = "e2b.seed"
)

// doors are what clients speak with, told apart by their requests: E2B's,
// administrators', those of agents' tools, kernel gateways and Letta's tools, the
// console, and the native API for all else.
type doors struct {
	e2b      *e2b.Door
	others   []otherDoor // the first that wants a request has it
	native   http.Handler
	registry *prometheus.Registry
	close    func() // ends what goes on without a request
}

type otherDoor struct {
	wants func(*http.Request) bool
	http.Handler
}

// ServeHTTP implements http.Handler.
func (d *doors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.e2b.Wants(r) {
		d.e2b.ServeHTTP(w, r)
		return
	}
	for _, o := range d.others {
		if o.wants(r) {
			o.ServeHTTP(w, r)
			return
		}
	}
	d.native.ServeHTTP(w, r)
}

// entrance is how the doors are reached: under which names, and by whom beside
// those with keys.
type entrance struct {
	hosts  []string
	people *signin.Provider
}

// openDoors puts the APIs in front of an engine.
func openDoors(ctx context.Context, dir string, cfg *config, e *engine.Engine, store brig.Store, seen *prometheus.Registry, in entrance, log *slog.Logger) (*doors, error) {
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
	used := &meter{engine: e}
	// One ring for all: what one door has seen of a key, or of an address,
	// the others know.
	ring := door.NewKeyring(e)
	ring.Cookie.Secure = strings.HasPrefix(cfg.URL, "https://")
	tools, err := mcp.New(ctx, mcp.Options{Service: e, Keys: ring, Log: log, Registry: seen, Hosts: in.hosts, Version: version()})
	if err != nil {
		return nil, err
	}
	data := envd.New(envd.Options{Service: e, Log: log, Metrics: used.sandbox})
	notebooks.Service, notebooks.Keys, notebooks.Log, notebooks.Registry = e, ring, log, seen
	notebooks.Bounds, notebooks.Hosts = cfg.bounds(), in.hosts
	gateway := kernels.New(notebooks)
	return &doors{
		close: func() { tools.Close(); gateway.Close(); data.Close() }, registry: seen,
		others: []otherDoor{
			{admin.Wants, admin.New(admin.Options{Service: e, Keys: ring, Log: log, Hosts: in.hosts})},
			{mcp.Wants, tools},
			{kernels.Wants, gateway},
			{letta.Wants, letta.New(letta.Options{Service: e, Keys: ring, Log: log, Hosts: in.hosts, Registry: seen})},
			{ui.Wants, ui.New(log, in.hosts)},
		},
		native: rest.New(rest.Options{
			Registry: seen, Service: e, Keys: ring, Log: log, Hosts: in.hosts, Version: version(), Bounds: cfg.bounds(), SignIn: in.people,
			Ready: func(ctx context.Context) error { _, err := store.Events(ctx, 1); return err },
		}),
		e2b: e2b.New(e2b.Options{
			Registry: seen, Service: e, Keys: ring, KeyActor: e.KeyByID, TenantKeys: keysOf(store),
			Log: log, Hosts: in.hosts, Bounds: cfg.bounds(),
			Domain: cfg.E2B.Domain, Internet: cfg.E2B.Internet, Templates: templates, Seed: seed, Live: e.Live, Metrics: used.control,
			Owner: func(ctx context.Context, id string) (string, error) { return store.Owner(ctx, brig.ID(id)) },
			Envd: func(w http.ResponseWriter, r *http.Request, s e2b.SandboxAccess) {
				data.Serve(w, r, envd.Sandbox{ID: s.ID, Token: s.Token, Env: s.Env, User: s.User, Dir: s.Dir})
			},
		}),
	}, nil
}

// e2bSecrets makes or reads the key for E2B's clients and the seed of tokens.
// The key has the form on which older clients insist.
func e2bSecrets(ctx context.Context, dir string, store brig.Store) (seed []byte, err error) {
	key, err := secretFile(filepath.Join(dir, e2bKeyFile), "the key for E2B's clients", func() string { return "e2b_" + randomHex(20) })
	if err != nil {
		return nil, err
	}
	text, err := secretFile(filepath.Join(dir, e2bSeedFile), "the seed of E2B's tokens", func() string { return randomHex(32) })
	if err != nil {
		return nil, err
	}
	return []byte(text), putFileKey(ctx, store, key, brig.Actor{Name: "e2b", Tenant: tenant, Role: brig.Member}, brig.E2BKey)
}

// keysOf lists the ids of a tenant's keys.
func keysOf(store brig.Store) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, tenant string) (ids []string, err error) {
		list, err := store.ListKeys(ctx, tenant)
		for _, k := range list {
			ids = append(ids, k.ID)
		}
		return ids, err
	}
}

// randomHex returns n random bytes as text.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// serveTLS serves E2B's clients on an address of their own, if there is one,
// until the returned function is called.
func (d *doors) serveTLS(cfg *config, tracer trace.Tracer, log *slog.Logger) (stop func(), err error) {
	if cfg.E2B.Listen == "" {
		return func() {}, nil
	}
	// ServeTLS would say so when nobody listens to it any more.
	if _, err := tls.LoadX509KeyPair(cfg.E2B.Cert, cfg.E2B.Key); err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "e2b.cert and e2b.key are no certificate with its key").
			WithHint("name two files in PEM: the certificate for *.domain, and its key").Because(err)
	}
	ln, err := net.Listen("tcp", cfg.E2B.Listen)
	if err != nil {
		return nil, brig.Errorf(brig.ConnectionFailed, "cannot listen on %s", cfg.E2B.Listen).
			WithHint("choose another address in e2b.listen").Because(err)
	}
	srv := door.NewServer(door.Traced(tracer, d.e2b), log)
	log.Info("serving E2B's clients", "address", ln.Addr().String(), "domain", cfg.E2B.Domain)
	return beside(srv, func() error { return srv.ServeTLS(ln, cfg.E2B.Cert, cfg.E2B.Key) }, "serve E2B's clients", log), nil
}

// beside serves until the returned function is called.
func beside(srv *http.Server, serve func() error, what string, log *slog.Logger) (stop func()) {
	go func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			log.Error(what, "err", err)
		}
	}()
	return func() { _ = srv.Close() }
}
