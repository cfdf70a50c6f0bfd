package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/store/sqlite"
)

func (c *cli) serveCommand() *cobra.Command {
	var (
		listen string
		pool   int
		tied   bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the REST API",
		Long: `Serve the REST API. The first start writes an admin key into the data folder,
which commands on this machine find by themselves. Sandboxes outlive the server;
the next one finds them again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.config()
			if err != nil {
				return err
			}
			if listen != "" {
				cfg.Listen = listen
			}
			if cmd.Flags().Changed("pool") {
				if cfg.Pool.Size = whole(pool); pool == 0 {
					cfg.Pool.Size = -1
				}
			}
			ctx := cmd.Context()
			if tied {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				go func() {
					_, _ = io.Copy(io.Discard, c.stdin) // an error is an end, too
					cancel()
				}()
			}
			return c.serve(ctx, cfg)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "`address` to listen on (default "+defaultListen+")")
	cmd.Flags().BoolVar(&tied, "until-eof", false, "end when standard input does: with the program that has started this one, however that ends")
	cmd.Flags().IntVar(&pool, "pool", defaultPool, "how many Python sandboxes wait to be used; 0 for none")
	return cmd
}

// drainTime is how long requests may take to finish when the server stops.
const drainTime = 5 * time.Second

// serve runs the server until ctx ends.
func (c *cli) serve(ctx context.Context, cfg *config) error {
	log := slog.New(slog.NewJSONHandler(c.stderr, nil))
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	lock, err := takeOver(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	// Listen before anything is recovered: a taken address changes nothing.
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return brig.Errorf(brig.ConnectionFailed, "cannot listen on %s", cfg.Listen).
			WithHint("choose another address with --listen").Because(err)
	}
	defer ln.Close()
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		return err
	}
	defer store.Close()
	grants, err := foundations(ctx, dir, store)
	if err != nil {
		return err
	}
	p, err := openWith(dir, log, cfg.images())
	if err != nil {
		return err
	}
	pool, err := cfg.pool()
	if err != nil {
		return err
	}
	templates, err := cfg.templates()
	if err != nil {
		return err
	}
	compiler := &interpreter.Transpiler{Binary: self, Argv: []string{compilerName}}
	defer compiler.Close()
	out, err := cfg.Egress.options()
	if err != nil {
		return err
	}
	o := engine.Options{
		TypeScript: compiler,
		Capacity:   engine.Capacity{Room: room}, Pool: pool,
		Store: store, Provider: p.provider, Images: p.images, Bounds: cfg.bounds(), Log: log,
		Egress:    out,
		Templates: templates, BuildMissing: cfg.Images.BuildMissing,
		Quota: cfg.quota(), GrantSeed: grants,
		KeepRuns: time.Duration(cfg.Keep.Runs), KeepEnded: time.Duration(cfg.Keep.Sandboxes),
	}
	o.Require = cfg.requirement()
	if err := cfg.screen(ctx, &o); err != nil {
		return err
	}
	if err := cfg.vault(ctx, dir, &o); err != nil {
		return err
	}
	if err := cfg.openWorkspaces(ctx, dir, &o); err != nil {
		return err
	}
	if o.Tools, err = cfg.Tools.options(dir); err != nil {
		return err
	}
	if err := checkKeys(ctx, store, o.Keys, log); err != nil {
		return err
	}
	people, err := c.openSignIn(cfg, &o, log)
	if err != nil {
		return err
	}
	defer keepHeads(ctx, dir, store, o.AuditKey, log)()
	w, err := cfg.watch(dir, &o)
	if err != nil {
		return err
	}
	cfg.Providers.options(dir, p.agent, w.metrics, &o)
	e := engine.New(ctx, o)
	defer e.Close()
	if err := e.Recover(ctx); err != nil {
		log.Error("recover", "err", err)
	}
	if err := cfg.Providers.first(ctx, store, e, log); err != nil {
		return err
	}
	end, err := w.begin(ctx, e)
	if err != nil {
		return err
	}
	defer end()
	all, err := openDoors(ctx, dir, cfg, e, store, w.registry, entrance{hosts(cfg, ln), people}, log)
	if err != nil {
		return err
	}
	defer all.close()
	tracer, flush, err := cfg.Otel.tracer(ctx, cfg.Region, log)
	if err != nil {
		return err
	}
	defer flush()
	front := door.Traced(tracer, all)
	stop, err := all.serveTLS(cfg, tracer, log)
	if err != nil {
		return err
	}
	defer stop()
	done, err := c.serveExecman(ctx, cfg, all, e, tracer, log)
	if err != nil {
		return err
	}
	defer done()
	return c.listen(ctx, door.NewServer(front, log), ln, dir, log)
}

// listen serves until ctx ends, and lets requests finish for a while.
func (c *cli) listen(ctx context.Context, srv *http.Server, ln net.Listener, dir string, log *slog.Logger) error {
	at := "http://" + ln.Addr().String()
	b, err := json.Marshal(announcement{URL: "http://" + reached(ln.Addr()), PID: os.Getpid()})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, serverFile)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	log.Info("serving", "url", at, "data_dir", dir, "version", version())
	fmt.Fprintf(c.stdout, "brig serves %s\nkey: %s\nkey for E2B's clients: %s\n", at, filepath.Join(dir, keyFile), filepath.Join(dir, e2bKeyFile))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// Shutdown begins with the listener, and somebody else may take its address.
	if err := os.Remove(file); err != nil {
		log.Error("remove the announcement", "err", err)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		_ = srv.Close() // their contexts end, and one-shots with them
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// reached returns where commands on this machine reach a listener. All addresses
// at once are none that a client could name: the loopback is one of them.
func reached(at net.Addr) string {
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))
	}
	return at.String()
}

// hosts are the names by which clients may call this server.
func hosts(cfg *config, ln net.Listener) []string {
	out := cfg.Hosts
	if u, err := url.Parse(cfg.URL); err == nil && u.Host != "" {
		out = append(out, u.Hostname())
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		out = append(out, host)
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsUnspecified() {
		out = append(out, a.IP.String())
	}
	return out
}

// adminKey makes sure that there is a key for the operator of this machine.
// Revoking it does not last: who can read the file is the operator.
func adminKey(ctx context.Context, dir string, store brig.Store) error {
	key, err := secretFile(filepath.Join(dir, keyFile), "the admin key", func() string {
		return "brig_" + strings.ToLower(rand.Text()+rand.Text())
	})
	if err != nil {
		return err
	}
	return putFileKey(ctx, store, key, brig.Actor{Name: "admin", Tenant: tenant, Role: brig.Operator}, brig.NativeKey)
}
