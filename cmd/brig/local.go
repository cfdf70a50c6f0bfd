package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/internal/hostaddr"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/provider/gvisor"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/store/sqlite"
	"github.com/brig-run/brig/volume"
)

// tenant is the operator's own tenant, which every data folder has.
const tenant = "default"

// parts holds the components of an engine on this machine.
type parts struct {
	images   *image.Store
	provider *gvisor.Provider
	agent    string // path of the agent's binary
	volumes  *volume.Store
}

// openParts prepares the images and the provider of a data folder.
func openParts(dir string, log *slog.Logger, o image.Options) (*parts, error) {
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
	volumes, err := volume.Open(filepath.Join(dir, "volumes"))
	if err != nil {
		return nil, err
	}
	p, err := gvisor.Open(gvisor.Options{
		Volume: volumes.ImageFunc(), DataDir: dir, Engine: engineFile, Shim: shimFile, Agent: agentFile, Programs: programsDir(dir), Log: log,
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
	return &parts{images: images, provider: p, agent: agentFile, volumes: volumes}, nil
}

// openLocal returns an engine in this process. If ephemeral is set, the engine only runs one-shots.
// One-shots need no records and may run while another process owns the data folder. Otherwise, this
// process owns the data folder until the engine ends.
func (c *cli) openLocal(ctx context.Context, dir string, ephemeral bool) (brig.Service, context.Context, func(), error) {
	cfg, err := c.loadConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	templates, err := cfg.templates()
	if err != nil {
		return nil, nil, nil, err
	}
	log := slog.New(slog.DiscardHandler)
	var from image.Options // a process that does not own the data folder must not change images
	if !ephemeral {
		from = cfg.images()
	}
	p, err := openParts(dir, log, from)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx = brig.WithActor(ctx, brig.Actor{Name: "local", Tenant: tenant, Role: brig.Operator})
	compiler := &interpreter.Transpiler{Binary: self, Argv: []string{compilerName}}
	out, err := cfg.Egress.options()
	if err != nil {
		return nil, nil, nil, err
	}
	own, err := cfg.Egress.ownAddresses()
	if err != nil {
		return nil, nil, nil, err
	}
	hostaddr.Declare(own)
	o := engine.Options{
		TypeScript: compiler,
		Provider:   p.provider, Images: p.images, LimitRange: cfg.limitRange(), Log: log,
		Capacity: capacity.Options{CheckRoom: checkMemory}, Egress: out,
		Templates: bootEach(templates), BuildMissing: cfg.Images.BuildMissing,
	}
	o.Require = cfg.requirement()
	if o.Rates, err = cfg.rates(); err != nil {
		return nil, nil, nil, err
	}
	if err := cfg.screen(ctx, &o); err != nil {
		return nil, nil, nil, err
	}
	if err := cfg.openWorkspaces(ctx, dir, &o); err != nil {
		return nil, nil, nil, err
	}
	if !ephemeral {
		o.Volumes, o.VolumeSize = p.volumes, int64(cfg.Volumes.Size)
	}
	if o.Tools, err = cfg.Tools.options(dir); err != nil {
		return nil, nil, nil, err
	}
	if ephemeral {
		o.Store = mem.New()
		if err := ensureOperatorTenant(ctx, o.Store); err != nil {
			return nil, nil, nil, err
		}
		e := engine.New(ctx, o)
		return e, ctx, func() { e.Close(); compiler.Close() }, nil
	}
	lock, err := acquireLock(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		lock.Close()
		return nil, nil, nil, err
	}
	o.Store, o.Retention, o.KeyInFile = store, cfg.keep(), keyInFile(dir)
	if err := errors.Join(ensureOperatorTenant(ctx, store), cfg.openVault(ctx, dir, &o), cfg.Providers.options(dir, p.agent, nil, &o)); err != nil {
		return nil, nil, nil, errors.Join(err, store.Close(), lock.Close())
	}
	e := engine.New(ctx, o)
	var builds *builder.Builder
	done := func() {
		if builds != nil {
			builds.Close()
		}
		e.Close()
		compiler.Close()
		_ = store.Close()
		lock.Close()
	}
	err = e.Recover(ctx)
	if err == nil {
		builds, err = newBuilder(ctx, dir, cfg, e, store, o.Templates, log)
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return localService{builder.Compose(e, builds), builds}, ctx, done, nil
}

// localService is an engine of this process with its builder of templates.
type localService struct {
	builder.ComposedService
	brig.TemplateService
}
