package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/execman"
)

func (c serveCommands) execman() *cobra.Command {
	var (
		listen string
		allow  []string
	)
	cmd := &cobra.Command{
		Use:   "execman",
		Short: "Run the server with RAGFlow's executor manager API",
		Long: `Run the server with the API of RAGFlow's executor manager: POST /run and GET /healthz. It
is brig serve with execman.listen set. For settings that the configuration file does not
have, it uses RAGFlow's variables SANDBOX_EXECUTOR_MANAGER_POOL_SIZE, SANDBOX_TIMEOUT,
SANDBOX_MAX_MEMORY, SANDBOX_BASE_PYTHON_IMAGE and SANDBOX_BASE_NODEJS_IMAGE. Sandboxes
always have gVisor's seccomp filter, regardless of SANDBOX_ENABLE_SECCOMP.

The protocol has no authentication. Without --allow, only this machine can connect.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.loadConfig()
			if err != nil {
				return err
			}
			cfg.Execman.Listen = cmp.Or(listen, cfg.Execman.Listen, defaultExecman)
			cfg.Execman.Allow = append(cfg.Execman.Allow, allow...)
			if err := cfg.Execman.readEnvironment(os.Getenv); err != nil {
				return err
			}
			if err := cfg.check(); err != nil {
				return err
			}
			return c.serve(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "`address` to listen on (default "+defaultExecman+")")
	cmd.Flags().StringArrayVar(&allow, "allow", nil, "allow clients of this `network` (default: only this machine)")
	return cmd
}

// serveExecman serves clients of executor managers, if a listen address is configured.
func (s *server) serveExecman(ctx context.Context) error {
	if s.cfg.Execman.Listen == "" {
		return nil
	}
	o, err := s.cfg.Execman.options()
	if err != nil {
		return err
	}
	if o.Server, err = readServerName(s.dir); err != nil {
		return err
	}
	asOperator := brig.WithActor(ctx, brig.Actor{Name: "execman", Tenant: tenant, Role: brig.Operator})
	if _, err := s.engine.GetTenant(asOperator, o.Actor.Tenant); err != nil {
		return brig.Errorf(brig.InvalidConfig, "execman.tenant: no tenant %q", brig.Clip(o.Actor.Tenant, 63)).
			WithHint("create it with brig tenant create, or leave it out").Because(err)
	}
	ln, err := net.Listen("tcp", s.cfg.Execman.Listen)
	if err != nil {
		return newListenError(s.cfg.Execman.Listen, "--listen or execman.listen", err)
	}
	o.Service, o.Log, o.Registry, o.Hosts = s.engine, s.log, s.apis.registry, append(o.Hosts, s.cfg.Hosts...)
	srv, err := s.cfg.newHTTPServer(execman.New(o), s.front, s.tracer, s.log)
	if err != nil {
		return err
	}
	s.log.Info("serving executor managers' clients", "address", ln.Addr().String(), "tenant", o.Actor.Tenant)
	fmt.Fprintf(s.stdout, "executor manager: http://%s\n", ln.Addr())
	s.addCloser(serveInBackground(srv, func() error { return srv.Serve(ln) }, "serve executor managers' clients", s.log))
	return nil
}
