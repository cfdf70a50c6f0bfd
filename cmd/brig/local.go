package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/provider/gvisor"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/store/sqlite"
)

// tenant is the one that every data folder has: the operator's own.
const tenant = "default"

// parts are what an engine on this machine is made of.
type parts struct {
	images   *image.Store
	provider *gvisor.Provider
	agent    string // the agent's file
}

// open prepares the images and the provider of a data folder.
func open(dir string, log *slog.Logger) (*parts, error) {
	return openWith(dir, log, image.Options{})
}

// openWith is open with options of images.
func openWith(dir string, log *slog.Logger, o image.Options) (*parts, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	o.Dir, o.Log, o.HostAge = dir, log, 10*time.Second
	images, err := image.Open(o)
	if err != nil {
		return nil, err
	}
	engineFile, err := unpack(dir, engineName)
	if err != nil {
		return nil, err
	}
	shimFile, err := unpack(dir, shimName)
	if err != nil {
		return nil, err
	}
	agentFile, err := unpack(dir, agentName)
	if err != nil {
		return nil, err
	}
	p, err := gvisor.Open(gvisor.Options{
		DataDir: dir, Engine: engineFile, Shim: shimFile, Agent: agentFile, Log: log,
		Root: func(digest string) (gvisor.Root, error) {
			r, err := images.Root(digest)
			if err != nil {
				return gvisor.Root{}, err
			}
			out := gvisor.Root{Dir: r.Dir}
			for _, b := range r.Binds {
				out.Binds = append(out.Binds, gvisor.Bind(b))
			}
			return out, nil
		},
	})
	if err != nil {
		return nil, err
	}
	return &parts{images: images, provider: p, agent: agentFile}, nil
}

// local returns an engine in this process. One-shots need no records and may
// run beside anything; everything else owns the data folder meanwhile.
func (c *cli) local(ctx context.Context, dir string, ephemeral bool) (brig.Service, context.Context, func(), error) {
	cfg, err := c.config()
	if err != nil {
		return nil, nil, nil, err
	}
	templates, err := cfg.templates()
	if err != nil {
		return nil, nil, nil, err
	}
	log := slog.New(slog.DiscardHandler)
	var from image.Options // who does not own the data folder changes no images
	if !ephemeral {
		from = cfg.images()
	}
	p, err := openWith(dir, log, from)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx = brig.WithActor(ctx, brig.Actor{Name: "local", Tenant: tenant, Role: brig.Operator})
	compiler := &interpreter.Transpiler{Binary: self, Argv: []string{compilerName}}
	out, err := cfg.Egress.options()
	if err != nil {
		return nil, nil, nil, err
	}
	o := engine.Options{
		TypeScript: compiler,
		Provider:   p.provider, Images: p.images, Bounds: cfg.bounds(), Log: log,
		Capacity: engine.Capacity{Room: room}, Egress: out,
		Templates: templates, BuildMissing: cfg.Images.BuildMissing,
	}
	o.Require = cfg.requirement()
	if err := cfg.screen(ctx, &o); err != nil {
		return nil, nil, nil, err
	}
	if err := cfg.openWorkspaces(ctx, dir, &o); err != nil {
		return nil, nil, nil, err
	}
	if o.Tools, err = cfg.Tools.options(dir); err != nil {
		return nil, nil, nil, err
	}
	if ephemeral {
		o.Store = mem.New()
		if err := founded(ctx, o.Store); err != nil {
			return nil, nil, nil, err
		}
		e := engine.New(ctx, o)
		return e, ctx, func() { e.Close(); compiler.Close() }, nil
	}
	lock, err := takeOver(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		lock.Close()
		return nil, nil, nil, err
	}
	o.Store = store
	cfg.Providers.options(dir, p.agent, nil, &o)
	if err := errors.Join(founded(ctx, store), cfg.vault(ctx, dir, &o)); err != nil {
		return nil, nil, nil, errors.Join(err, store.Close(), lock.Close())
	}
	e := engine.New(ctx, o)
	done := func() {
		e.Close()
		compiler.Close()
		_ = store.Close()
		lock.Close()
	}
	if err := e.Recover(ctx); err != nil {
		done()
		return nil, nil, nil, err
	}
	return e, ctx, done, nil
}
