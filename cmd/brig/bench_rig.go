//go:build bench

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/store/sqlite"
)

// rig is an in-process server with a temporary data folder, and a client of the server.
type rig struct {
	*workbench
	ctx     context.Context // contains an actor, for direct calls to the engine
	dir     string
	warm    int          // the initial size of the pool
	live    atomic.Int64 // the number of sandboxes outside the pool
	parts   *parts
	store   *sqlite.Store
	engine  *engine.Engine
	client  *http.Client
	url     string
	key     string
	group   string    // the cgroup above its sandboxes; empty if there is none
	started time.Time // the time when the pool began to fill
	undo    []func()
}

// newPoolOptions returns the options of a pool of Python sandboxes of a constant size.
func newPoolOptions(n int) engine.PoolOptions {
	return engine.PoolOptions{
		Memory: int64(n+1) * 64 * brig.MiB, MaxPerClass: n,
		Warm: []engine.WarmClass{{Image: brig.HostImage, Language: brig.Python, Count: n}},
	}
}

// newRig starts a server with the given pool. The caller must call close.
func (w *workbench) newRig(ctx context.Context, pool engine.PoolOptions, change ...func(*engine.Options)) (_ *rig, err error) {
	g := &rig{workbench: w, ctx: brig.WithActor(ctx, brig.Actor{Name: "bench", Tenant: tenant, Role: brig.Operator})}
	for _, kind := range pool.Warm {
		g.warm += kind.Count
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if err := g.createFolder(); err != nil {
		return nil, err
	}
	cfg, err := w.loadConfig()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(w.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if g.parts, err = openParts(g.dir, log, image.Options{}); err != nil {
		return nil, err
	}
	if g.store, err = sqlite.Open(ctx, filepath.Join(g.dir, dbFile)); err != nil {
		return nil, err
	}
	g.undo = append(g.undo, func() { _ = g.store.Close() })
	if err := ensureOperatorTenant(ctx, g.store); err != nil {
		return nil, err
	}
	templates, err := cfg.templates()
	if err != nil {
		return nil, err
	}
	o := engine.Options{
		Capacity: capacity.Options{CheckRoom: checkMemory}, Pool: pool, Templates: templates,
		Store: g.store, Provider: g.parts.provider, Images: g.parts.images, LimitRange: cfg.limitRange(), Log: log,
	}
	if err := cfg.openWorkspaces(ctx, g.dir, &o); err != nil {
		return nil, err
	}
	for _, f := range change {
		f(&o)
	}
	seen, err := cfg.monitor(g.dir, &o)
	if err != nil {
		return nil, err
	}
	o.HealthCheckInterval = 0 // background work would disturb the measurement
	g.engine = engine.New(ctx, o)
	g.undo = append(g.undo, g.stop)
	g.started = time.Now()
	if err := g.engine.Recover(g.ctx); err != nil {
		return nil, err
	}
	if err := g.serve(log, cfg, seen.registry); err != nil {
		return nil, err
	}
	return g, g.openAccount()
}

// createFolder creates the data folder next to the default one, so that it is on the
// same disk.
func (g *rig) createFolder() error {
	usual, err := g.resolveDataFolder()
	if err != nil {
		return err
	}
	if err = os.MkdirAll(usual, 0o700); err == nil {
		g.dir, err = os.MkdirTemp(usual, "bench-")
	}
	if err == nil {
		g.undo = append(g.undo, func() { os.RemoveAll(g.dir) })
		g.dir, err = filepath.EvalSymlinks(g.dir)
	}
	if err != nil {
		return brig.Errorf(brig.NotInitialized, "the data folder cannot be made").
			WithHint("choose a folder that you may write to with --data-dir").Because(err)
	}
	return nil
}

// serve starts serving the engine's APIs on a loopback port, as brig serve does.
func (g *rig) serve(log *slog.Logger, cfg *config, seen *prometheus.Registry) error {
	if err := keyFileSpecs()[0].make(g.ctx, g.dir, g.store); err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(g.dir, keyFile))
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	g.key = strings.TrimSpace(string(key))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	all, err := openAPIs(g.ctx, g.dir, cfg, g.engine, g.store, seen, apiAccess{clock: brig.WallClock(time.Now)}, log)
	if err != nil {
		return err
	}
	g.undo = append(g.undo, all.close)
	srv := httpapi.NewServer(all, log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ln) // Serve always returns an error after close
	}()
	g.url = "http://" + ln.Addr().String()
	g.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}}
	g.undo = append(g.undo, func() {
		g.client.CloseIdleConnections()
		_ = srv.Close()
		<-served
	})
	return nil
}

// close stops the server and deletes the data folder.
func (g *rig) close() {
	for len(g.undo) > 0 {
		last := len(g.undo) - 1
		g.undo[last]()
		g.undo = g.undo[:last]
	}
}

// stop stops the engine and removes its sandboxes.
func (g *rig) stop() {
	ctx := context.WithoutCancel(g.ctx)
	_ = g.removeAll(ctx) // concurrent and therefore faster than the sweep, which removes the rest
	g.engine.Close()
	if _, err := g.parts.provider.Sweep(ctx, nil); err != nil {
		g.engine.Log.Error("end what was measured", "err", err)
	}
}

// removeAll removes the sandboxes that are not in the pool.
func (g *rig) removeAll(ctx context.Context) error {
	for {
		page, err := g.engine.List(ctx, brig.ListOptions{Limit: 1000})
		if err != nil || len(page.Sandboxes) == 0 {
			return err
		}
		g.live.Add(int64(-len(page.Sandboxes)))
		err = forEach(page.Sandboxes, func(s *brig.Sandbox) error { return g.engine.Remove(ctx, string(s.ID)) })
		if err != nil {
			return err
		}
	}
}
