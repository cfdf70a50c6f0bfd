package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/engine"
)

// The files of the E2B door in the data folder: a key for its clients, and
// what the sandboxes' tokens are made of.
const (
	e2bKeyFile  = "e2b.key"
	e2bSeedFile = "e2b.seed"
)

// doors are what clients speak with: the native API and E2B's, told apart by
// their requests.
type doors struct {
	native http.Handler
	e2b    *e2b.Door
	close  func() // ends what goes on without a request
}

// ServeHTTP implements http.Handler.
func (d *doors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.e2b.Wants(r) {
		d.e2b.ServeHTTP(w, r)
		return
	}
	d.native.ServeHTTP(w, r)
}

// openDoors puts the APIs in front of an engine.
func openDoors(ctx context.Context, dir string, cfg *config, e *engine.Engine, store brig.Store, hosts []string, log *slog.Logger) (*doors, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(poolMetrics{e}); err != nil {
		return nil, err
	}
	templates, err := cfg.templates()
	if err != nil {
		return nil, err
	}
	seed, err := e2bSecrets(ctx, dir, store)
	if err != nil {
		return nil, err
	}
	used := &meter{engine: e}
	// One ring for both: what one door has seen of a key, or of an address,
	// the other knows.
	ring := door.NewKeyring(e)
	data := envd.New(envd.Options{Service: e, Log: log, Metrics: used.sandbox})
	return &doors{
		close: data.Close,
		native: rest.New(rest.Options{
			Registry: registry, Service: e, Keys: ring, Log: log, Hosts: hosts, Version: version(), Bounds: cfg.bounds(),
			Ready: func(ctx context.Context) error { _, err := store.Events(ctx, 1); return err },
		}),
		e2b: e2b.New(e2b.Options{
			Registry: registry, Service: e, Keys: ring, KeyActor: e.KeyByID, TenantKeys: keysOf(store),
			Log: log, Hosts: hosts, Bounds: cfg.bounds(),
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
func (d *doors) serveTLS(cfg *config, log *slog.Logger) (stop func(), err error) {
	if cfg.E2B.Listen == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", cfg.E2B.Listen)
	if err != nil {
		return nil, brig.Errorf(brig.ConnectionFailed, "cannot listen on %s", cfg.E2B.Listen).
			WithHint("choose another address in e2b.listen").Because(err)
	}
	srv := door.NewServer(d.e2b, log)
	failed := make(chan error, 1)
	go func() { failed <- srv.ServeTLS(ln, cfg.E2B.Cert, cfg.E2B.Key) }()
	log.Info("serving E2B's clients", "address", ln.Addr().String(), "domain", cfg.E2B.Domain)
	go func() {
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve E2B's clients", "err", err)
		}
	}()
	return func() { _ = srv.Close() }, nil
}
