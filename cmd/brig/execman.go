package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/engine"
)

func (c *cli) execmanCommand() *cobra.Command {
	var (
		listen string
		allow  []string
	)
	cmd := &cobra.Command{
		Use:   "execman",
		Short: "Serve as an executor manager, as RAGFlow's clients know it",
		Long: `Serve as an executor manager, as RAGFlow's clients know it: POST /run, and
GET /healthz. It is brig serve with execman.listen set, and takes what the
configuration file does not say from RAGFlow's own variables:
SANDBOX_EXECUTOR_MANAGER_POOL_SIZE, SANDBOX_TIMEOUT, SANDBOX_MAX_MEMORY,
SANDBOX_BASE_PYTHON_IMAGE, SANDBOX_BASE_NODEJS_IMAGE. Sandboxes always have
gVisor's own seccomp filter, whatever SANDBOX_ENABLE_SECCOMP says.

The protocol asks nobody who they are: for other machines than this one, name
their networks with --allow.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.config()
			if err != nil {
				return err
			}
			cfg.Execman.Listen = cmp.Or(listen, cfg.Execman.Listen, defaultExecman)
			cfg.Execman.Allow = append(cfg.Execman.Allow, allow...)
			if err := cfg.Execman.fromEnvironment(os.Getenv); err != nil {
				return err
			}
			if err := cfg.check(); err != nil {
				return err
			}
			return c.serve(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "`address` to listen on (default "+defaultExecman+")")
	cmd.Flags().StringArrayVar(&allow, "allow", nil, "a `network` that may use it (default this machine alone)")
	return cmd
}

// serveExecman serves executor managers' clients, if they have an address,
// until the returned function is called.
func (c *cli) serveExecman(ctx context.Context, cfg *config, d *doors, e *engine.Engine, tracer trace.Tracer, log *slog.Logger) (stop func(), err error) {
	if cfg.Execman.Listen == "" {
		return func() {}, nil
	}
	o, err := cfg.Execman.options()
	if err != nil {
		return nil, err
	}
	asOperator := brig.WithActor(ctx, brig.Actor{Name: "execman", Tenant: tenant, Role: brig.Operator})
	if _, err := e.GetTenant(asOperator, o.Actor.Tenant); err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "execman.tenant: there is no tenant %q", brig.Clip(o.Actor.Tenant, 63)).
			WithHint("make it with brig tenant create, or leave it out").Because(err)
	}
	ln, err := net.Listen("tcp", cfg.Execman.Listen)
	if err != nil {
		return nil, brig.Errorf(brig.ConnectionFailed, "cannot listen on %s", cfg.Execman.Listen).
			WithHint("choose another address in execman.listen").Because(err)
	}
	o.Service, o.Log, o.Registry, o.Hosts = e, log, d.registry, append(o.Hosts, cfg.Hosts...)
	srv := door.NewServer(door.Traced(tracer, execman.New(o)), log)
	log.Info("serving executor managers' clients", "address", ln.Addr().String(), "tenant", o.Actor.Tenant)
	fmt.Fprintf(c.stdout, "executor manager: http://%s\n", ln.Addr())
	return beside(srv, func() error { return srv.Serve(ln) }, "serve executor managers' clients", log), nil
}
