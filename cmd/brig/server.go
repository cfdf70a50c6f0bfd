package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/engine"
	endclock "github.com/brig-run/brig/internal/clock"
	"github.com/brig-run/brig/internal/hostaddr"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/signin"
	"github.com/brig-run/brig/store/sqlite"
	"github.com/brig-run/brig/webhook"
)

// server is the state of brig serve. The steps of run fill its fields in order. Each step registers
// its cleanup with atClose.
type server struct {
	serveCommands
	cfg      *config
	log      *slog.Logger
	dir      string
	listener net.Listener
	socket   net.Listener // in the data folder
	store    *sqlite.Store
	parts    *parts
	options  engine.Options // of the engine
	signIn   *signin.Provider
	monitor  *monitor
	engine   *engine.Engine
	apis     *apis
	tracer   trace.Tracer
	front    *httpapi.Limiter
	http     *http.Server
	closers  []func() // in the order of registration
}

// run runs the server until ctx ends.
func (s *server) run(ctx context.Context) error {
	defer s.close()
	for _, step := range []func(context.Context) error{
		s.lockFolder,
		// Listen before recovery: if the address is in use, the server fails
		// before it changes any state.
		s.openListener,
		s.openSocket,
		s.openClock,
		s.openStore,
		s.openProvider,
		s.configureEngine,
		s.configureData,
		s.configureSignIn,
		s.signAuditHeads,
		s.configureMonitor,
		s.startEngine,
		s.startWebhooks,
		s.startMonitor,
		s.openAPIs,
		s.openTracer,
		s.openHTTPServer,
		s.serveE2B,
		s.serveExecman,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.listen(ctx, s.http, []net.Listener{s.listener, s.socket}, s.dir, s.apis.link, s.log)
}

// addCloser registers the cleanup of a step.
func (s *server) addCloser(end func()) { s.closers = append(s.closers, end) }

// close runs the cleanups in reverse order.
func (s *server) close() {
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		end := s.closers[last]
		s.closers = s.closers[:last]
		end()
	}
}

func (s *server) lockFolder(context.Context) (err error) {
	if s.dir, err = s.resolveDataFolder(); err != nil {
		return err
	}
	lock, err := acquireLock(s.dir)
	if err != nil {
		return err
	}
	s.addCloser(func() { lock.Close() })
	return nil
}

func (s *server) openListener(context.Context) (err error) {
	if s.listener, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return newListenError(s.cfg.Listen, "--listen", err)
	}
	s.addCloser(func() { s.listener.Close() })
	return nil
}

// openSocket listens on the data folder's socket. The socket is removed before the folder's lock is
// released.
func (s *server) openSocket(ctx context.Context) (err error) {
	if s.socket, err = listenSocket(ctx, s.dir); err != nil {
		return err
	}
	s.addCloser(func() {
		s.socket.Close()
		if err := os.Remove(filepath.Join(s.dir, socketFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Error("failed to remove the socket", "err", err)
		}
	})
	return nil
}

// clockFile contains the latest time that a server has observed.
const clockFile = "clock"

// openClock opens the clock that determines when credentials expire.
func (s *server) openClock(ctx context.Context) error {
	file := filepath.Join(s.dir, clockFile)
	c, err := endclock.Open(file, endclock.System(), s.log)
	if err != nil {
		return brig.Errorf(brig.NotInitialized, "cannot read the highest time in %s", file).
			WithHint("repair the file; if the system's clock is right, delete it").Because(err)
	}
	go c.Run(ctx)
	s.addCloser(func() {
		if err := c.Save(); err != nil {
			s.log.Error("failed to store the highest time", "file", file, "err", err)
		}
	})
	s.options.Clock = c
	return nil
}

// openStore opens the records, and creates the records that every server needs.
func (s *server) openStore(ctx context.Context) (err error) {
	if s.store, err = sqlite.Open(ctx, filepath.Join(s.dir, dbFile)); err != nil {
		return err
	}
	s.addCloser(func() { s.store.Close() })
	s.options.Store = s.store
	s.options.GrantSeed, err = bootstrap(ctx, s.dir, s.store)
	return err
}

func (s *server) openProvider(context.Context) (err error) {
	if s.parts, err = openParts(s.dir, s.log, s.cfg.images()); err != nil {
		return err
	}
	s.options.Provider, s.options.Images, s.options.Log = s.parts.provider, s.parts.images, s.log
	return nil
}

// configureEngine sets the options of the engine that come from the
// configuration alone.
func (s *server) configureEngine(context.Context) (err error) {
	o, cfg := &s.options, s.cfg
	if o.Pool, err = cfg.pool(); err != nil {
		return err
	}
	if o.Templates, err = cfg.templates(); err != nil {
		return err
	}
	compiler := &interpreter.Transpiler{Binary: self, Argv: []string{compilerName}}
	s.addCloser(func() { compiler.Close() })
	o.TypeScript = compiler
	if o.Egress, err = cfg.Egress.options(); err != nil {
		return err
	}
	own, err := cfg.Egress.ownAddresses()
	if err != nil {
		return err
	}
	hostaddr.Declare(own)
	o.Capacity, o.LimitRange, o.Quota = cfg.capacity(), cfg.limitRange(), cfg.quota()
	o.BuildMissing = cfg.Images.BuildMissing
	o.Streams, o.Require = cfg.Streams.limits(), cfg.requirement()
	o.RunRetention, o.EndedRetention, o.Retention = time.Duration(cfg.Keep.Runs), time.Duration(cfg.Keep.Sandboxes), cfg.keep()
	o.SaveEvery, o.PackAfter = cfg.Workspaces.SaveEvery.toDuration(), time.Duration(cfg.Pause.PackAfter)
	return nil
}

// configureData sets the options of the engine that use the data folder.
func (s *server) configureData(ctx context.Context) (err error) {
	o, cfg := &s.options, s.cfg
	o.KeyInFile = keyInFile(s.dir)
	if err := cfg.screen(ctx, o); err != nil {
		return err
	}
	if err := cfg.openVault(ctx, s.dir, o); err != nil {
		return err
	}
	if err := cfg.openWorkspaces(ctx, s.dir, o); err != nil {
		return err
	}
	o.PrivateWebhooks = cfg.Webhooks.Private
	o.Volumes, o.VolumeSize = s.parts.volumes, int64(cfg.Volumes.Size)
	s.addCloser(o.Volumes.Close)
	if o.Tools, err = cfg.Tools.options(s.dir); err != nil {
		return err
	}
	return checkKeys(ctx, s.store, o.Keys, s.log)
}

func (s *server) configureSignIn(context.Context) (err error) {
	s.signIn, err = s.openSignIn(s.cfg, &s.options, s.log)
	return err
}

func (s *server) signAuditHeads(ctx context.Context) error {
	s.addCloser(writeHeadsPeriodically(ctx, s.dir, s.store, s.options.AuditKey, s.log))
	return nil
}

func (s *server) configureMonitor(context.Context) (err error) {
	if s.monitor, err = s.cfg.monitor(s.dir, &s.options); err != nil {
		return err
	}
	return s.cfg.Providers.options(s.dir, s.parts.agent, s.monitor.metrics, &s.options)
}

// startEngine starts the engine, which adopts the sandboxes of an earlier
// server.
func (s *server) startEngine(ctx context.Context) error {
	s.engine = engine.New(ctx, s.options)
	s.addCloser(s.engine.Close)
	s.addCloser(s.engine.SaveWorkspaces)
	if err := s.engine.Recover(ctx); err != nil {
		s.log.Error("recover", "err", err)
	}
	return s.cfg.Providers.configureMissing(ctx, s.store, s.engine, s.log)
}

// startWebhooks delivers lifecycle events until the server stops.
func (s *server) startWebhooks(ctx context.Context) error {
	keys := s.options.Keys
	deliverer := webhook.New(webhook.Options{
		Store: s.store, Private: s.cfg.Webhooks.Private, Log: s.log,
		Open: func(w *brig.Webhook) ([]byte, error) {
			return keys.Open(w.SealedSecret.Key, w.SealedSecret.Sealed, engine.WebhookSecretLocation(w)...)
		},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { deliverer.Run(ctx) })
	s.addCloser(func() { cancel(); group.Wait() })
	return nil
}

func (s *server) startMonitor(ctx context.Context) error {
	end, err := s.monitor.begin(ctx, s.engine)
	if err != nil {
		return err
	}
	s.addCloser(end)
	return nil
}

func (s *server) openAPIs(ctx context.Context) (err error) {
	access := apiAccess{hosts(s.cfg, s.listener), s.signIn, s.options.Clock}
	if s.apis, err = openAPIs(ctx, s.dir, s.cfg, s.engine, s.store, s.monitor.registry, access, s.log); err != nil {
		return err
	}
	s.addCloser(s.apis.close)
	return nil
}

func (s *server) openTracer(ctx context.Context) error {
	tracer, flush, err := s.cfg.Otel.tracer(ctx, s.cfg.Region, s.log)
	if err != nil {
		return err
	}
	s.tracer = tracer
	s.addCloser(flush)
	return nil
}

// openHTTPServer creates the HTTP server for the main address, and the limits that all addresses
// share.
func (s *server) openHTTPServer(ctx context.Context) (err error) {
	s.front = httpapi.NewLimiter(s.cfg.Requests.limits())
	s.monitor.registry.MustRegister(s.front.Collectors()...)
	s.cfg.Requests.bounded(ctx, s.front, s.log)
	s.http, err = s.cfg.newHTTPServer(s.apis, s.front, s.tracer, s.log)
	return err
}

// serveE2B serves E2B clients on their own address, if one is configured.
func (s *server) serveE2B(context.Context) error {
	stop, err := s.apis.serveTLS(s.cfg, s.front, s.tracer, s.log)
	if err != nil {
		return err
	}
	s.addCloser(stop)
	return nil
}
