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
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/store/sqlite"
)

// rig is a server in this process, with a data folder of its own, and a client
// that calls it.
type rig struct {
	*workbench
	ctx    context.Context // with an actor, for asking the engine itself
	dir    string
	warm   int          // how many wait in the pool from the start
	live   atomic.Int64 // how many sandboxes there are beside those
	parts  *parts
	store  *sqlite.Store
	engine *engine.Engine
	client *http.Client
	url    string
	key    string
	group  string    // the cgroup above its sandboxes; empty where there is none
	began  time.Time // when the pool began to fill
	undo   []func()
}

// pooled asks for a pool of Python sandboxes that neither grows nor shrinks.
func pooled(n int) engine.PoolOptions {
	return engine.PoolOptions{
		Memory: int64(n+1) * 64 * brig.MiB, Most: n,
		Warm: []engine.Warm{{Image: brig.HostImage, Language: brig.Python, Count: n}},
	}
}

// newRig starts a server. What is returned must be closed.
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
	if err := g.folder(); err != nil {
		return nil, err
	}
	cfg, err := w.config()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(w.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if g.parts, err = open(g.dir, log); err != nil {
		return nil, err
	}
	if g.store, err = sqlite.Open(ctx, filepath.Join(g.dir, dbFile)); err != nil {
		return nil, err
	}
	g.undo = append(g.undo, func() { _ = g.store.Close() })
	if err := founded(ctx, g.store); err != nil {
		return nil, err
	}
	templates, err := cfg.templates()
	if err != nil {
		return nil, err
	}
	o := engine.Options{
		Capacity: engine.Capacity{Room: room}, Pool: pool, Templates: templates,
		Store: g.store, Provider: g.parts.provider, Images: g.parts.images, Bounds: cfg.bounds(), Log: log,
	}
	if err := cfg.openWorkspaces(ctx, g.dir, &o); err != nil {
		return nil, err
	}
	for _, f := range change {
		f(&o)
	}
	seen, err := cfg.watch(g.dir, &o)
	if err != nil {
		return nil, err
	}
	o.Trial = 0 // nothing goes on beside what is measured
	g.engine = engine.New(ctx, o)
	g.undo = append(g.undo, g.stop)
	g.began = time.Now()
	if err := g.engine.Recover(g.ctx); err != nil {
		return nil, err
	}
	if err := g.serve(log, cfg, seen.registry); err != nil {
		return nil, err
	}
	return g, g.account()
}

// folder makes the data folder beside the usual one, so that it is on the
// same disk.
func (g *rig) folder() error {
	usual, err := g.dataFolder()
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

// serve puts the REST API in front of the engine, as brig serve does.
func (g *rig) serve(log *slog.Logger, cfg *config, seen *prometheus.Registry) error {
	if err := adminKey(g.ctx, g.dir, g.store); err != nil {
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
	all, err := openDoors(g.ctx, g.dir, cfg, g.engine, g.store, seen, entrance{}, log)
	if err != nil {
		return err
	}
	g.undo = append(g.undo, all.close)
	srv := door.NewServer(all, log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ln) // it is closed
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

// close ends the server, and everything that it made.
func (g *rig) close() {
	for len(g.undo) > 0 {
		last := len(g.undo) - 1
		g.undo[last]()
		g.undo = g.undo[:last]
	}
}

// stop ends the engine and everything that it made.
func (g *rig) stop() {
	ctx := context.WithoutCancel(g.ctx)
	_ = g.removeAll(ctx) // many at once; what is left is swept, one by one
	g.engine.Close()
	if _, err := g.parts.provider.Sweep(ctx, nil); err != nil {
		g.engine.Log.Error("end what was measured", "err", err)
	}
}

// removeAll ends the sandboxes that are not in the pool.
func (g *rig) removeAll(ctx context.Context) error {
	for {
		page, err := g.engine.List(ctx, brig.ListOptions{Limit: 1000})
		if err != nil || len(page.Sandboxes) == 0 {
			return err
		}
		g.live.Add(int64(-len(page.Sandboxes)))
		err = each(page.Sandboxes, func(s *brig.Sandbox) error { return g.engine.Remove(ctx, string(s.ID)) })
		if err != nil {
			return err
		}
	}
}
