package main

import (
	"context"
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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/version"
	"github.com/brig-run/brig/ui"
)

// serveCommands are the commands that run servers.
type serveCommands struct{ *cli }

func (c serveCommands) command() *cobra.Command {
	var (
		listen string
		pool   int
		tied   bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: REST API, console, MCP and E2B",
		Long: `Run the server in the foreground, with the REST API, the web console at /console/, the
documentation at /docs/, MCP at /mcp, and the protocol of E2B's clients. Commands of the
same user need no key: they use the socket brig.sock in the data folder. The first start
writes an admin key for other clients into the folder.
Sandboxes continue to run when the server stops, and the next server adopts them.`,
		Example: `  brig serve
  brig serve --listen 0.0.0.0:2744 --config brig.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.loadConfig()
			if err != nil {
				return err
			}
			if listen != "" {
				cfg.Listen = listen
			}
			if cmd.Flags().Changed("pool") {
				if cfg.Pool.Size = integer(pool); pool == 0 {
					cfg.Pool.Size = -1
				}
			}
			ctx := cmd.Context()
			if tied {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				go func() {
					_, _ = io.Copy(io.Discard, c.stdin) // an error also ends the input
					cancel()
				}()
			}
			return c.serve(ctx, cfg)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "`address` to listen on (default "+defaultListen+")")
	cmd.Flags().BoolVar(&tied, "until-eof", false, "stop at the end of standard input, for example when the parent process ends")
	cmd.Flags().IntVar(&pool, "pool", defaultPool, "number of warm Python sandboxes; 0 disables the pool")
	return cmd
}

// drainTimeout bounds how long a stopping server waits for open requests.
const drainTimeout = 5 * time.Second

// serve runs the server until ctx ends.
func (c serveCommands) serve(ctx context.Context, cfg *config) error {
	s := &server{serveCommands: c, cfg: cfg, log: slog.New(slog.NewJSONHandler(c.stderr, nil))}
	return s.run(ctx)
}

// newListenError returns the error for an address on which a server cannot listen. The argument
// setting is the flag or field that configures the address.
func newListenError(address, setting string, err error) error {
	cause := err
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		cause = e.Err
	}
	hint := "choose another address with " + setting
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "stop the program that uses the port, or choose another address with " + setting
	}
	return brig.Errorf(brig.ConnectionFailed, "cannot listen on %s: %v", address, cause).WithHint("%s", hint)
}

// listen serves on all listeners until ctx ends, and then waits up to drainTimeout
// for open requests. It announces the address of the first listener.
func (c serveCommands) listen(ctx context.Context, srv *http.Server, all []net.Listener, dir string, link *signInLink, log *slog.Logger) error {
	ln := all[0]
	at := "http://" + ln.Addr().String()
	b, err := json.Marshal(announcement{URL: "http://" + reachableAddress(ln.Addr()), PID: os.Getpid()})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, serverFile)
	if err := writeSecret(file, b); err != nil {
		return err
	}
	defer os.Remove(file)
	log.Info("serving", "url", at, "data_dir", dir, "version", version.String())
	fmt.Fprintf(c.stdout, "brig serves %s\nkey: %s\nkey for E2B's clients: %s\nconsole: http://%s%s\n", at, filepath.Join(dir, keyFile), filepath.Join(dir, e2bKeyFile), reachableAddress(ln.Addr()), ui.Prefix)
	if link != nil && isTerminal(c.stdout) {
		fmt.Fprintf(c.stdout, "sign in (once, within %.0f minutes): http://%s%s%s\n", signInTTL.Minutes(), reachableAddress(ln.Addr()), signInPath, link.create())
	}
	served := make(chan error, len(all))
	for _, ln := range all {
		go func() { served <- srv.Serve(ln) }()
	}
	select {
	case err := <-served:
		_ = srv.Close() // one listener failed, and the server needs all of them
		return err
	case <-ctx.Done():
	}
	// Remove the announcement first: once Shutdown has closed the listener,
	// another program may take its address.
	if err := os.Remove(file); err != nil {
		log.Error("failed to remove the announcement of the server's address", "err", err)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		_ = srv.Close() // cancels the contexts of requests, which ends one-shots
	}
	for range all {
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	return nil
}

// reachableAddress returns the address at which commands on this machine reach
// a listener. Clients cannot connect to the unspecified address, so it is
// replaced with the loopback address.
func reachableAddress(at net.Addr) string {
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))
	}
	return at.String()
}

// hosts returns the host names that clients may use for this server.
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
