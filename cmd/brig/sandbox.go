package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c *cli) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sandbox",
		Aliases: []string{"sb", "sandboxes"},
		Short:   "Create, use and end sandboxes that stay",
	}
	cmd.AddCommand(c.sandboxCreate(), c.sandboxList(), c.sandboxGet(), c.sandboxExec(), c.sandboxShell(), c.sandboxCode(), c.contextCommand(),
		c.sandboxExecs(), c.sandboxStart(), c.sandboxProcesses(), c.sandboxAttach(), c.sandboxSignal(), c.sandboxCopy(), c.sandboxForward(),
		c.sandboxLogs(), c.sandboxExtend(), c.sandboxEgress(), c.sandboxAttest(), c.sandboxStop(), c.sandboxKill(), c.sandboxRemove())
	return cmd
}

func (c *cli) sandboxCreate() *cobra.Command {
	var f runFlags
	var ttl, freeze time.Duration
	var fixed, entrypoint bool
	var template string
	cmd := &cobra.Command{
		Use:   "create [NAME] [flags] [-- CMD ARG…]",
		Short: "Create a sandbox; a command is its main program",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := brig.Spec{Image: f.image, Template: template, Entrypoint: entrypoint, TTL: ttl, FixedLease: fixed, FreezeAfter: freeze, Secrets: secretUses(f.secrets)}
			if template != "" && !cmd.Flags().Changed("image") {
				spec.Image = ""
			}
			names := args
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				names = args[:dash]
				if len(args) > dash {
					spec.Command = &brig.Command{Argv: args[dash:], User: f.user, Timeout: f.timeout}
				}
			}
			switch len(names) {
			case 0:
			case 1:
				spec.Name = names[0]
			default:
				return brig.Errorf(brig.InvalidArgument, "give one name").WithHint("put a command after --")
			}
			var err error
			if spec.Limits, err = f.limits(); err != nil {
				return err
			}
			if spec.Egress, err = f.egress.egress(); err != nil {
				return err
			}
			if spec.Workspace, err = f.workspace.use(); err != nil {
				return err
			}
			spec.Placement = f.place.placement()
			if spec.Require, err = requirement(f.require); err != nil {
				return err
			}
			if spec.Env, err = pairs("--env", f.env, true); err != nil {
				return err
			}
			if spec.Labels, err = pairs("--label", f.labels, false); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Create(ctx, spec)
				if err != nil {
					return err
				}
				return c.showSandbox(s, s.Spec.Name)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.image, "image", brig.HostImage, "image by name or digest")
	fl.StringVar(&template, "template", "", "`template` by name, in the stead of an image")
	fl.BoolVar(&entrypoint, "entrypoint", false, "the image's entrypoint is the main program, and a command its arguments")
	fl.DurationVar(&ttl, "ttl", 0, "how long it lives without being used (default 5m)")
	fl.BoolVar(&fixed, "fixed-lease", false, "using it does not renew its lease")
	fl.DurationVar(&freeze, "freeze-after", 0, "how long it may be unused before it is frozen (default never)")
	f.addLimits(cmd)
	f.egress.add(cmd)
	f.workspace.add(cmd)
	addRequire(cmd, &f.require)
	f.place.add(cmd)
	fl.StringArrayVarP(&f.env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	fl.StringArrayVar(&f.secrets, "secret", nil, "secret as `NAME` or NAME=VARIABLE")
	fl.StringArrayVar(&f.labels, "label", nil, "label as `K=V`")
	fl.StringVar(&f.user, "user", "", "user of the command: user (default) or root")
	fl.DurationVar(&f.timeout, "timeout", 0, "wall time of the command (default none but the lease)")
	return cmd
}

// showSandbox prints a sandbox as JSON, or a short line about it.
func (c *cli) showSandbox(s *brig.Sandbox, line string) error {
	if c.asJSON {
		return c.printJSON(s)
	}
	_, err := fmt.Fprintln(c.stdout, line)
	return err
}

func (c *cli) sandboxList() *cobra.Command {
	var labels, states []string
	var depth int
	cmd := &cobra.Command{
		Use:     "ls [NAME [PATH]]",
		Aliases: []string{"list"},
		Short:   "List sandboxes, newest first, or the files of one",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return c.listFiles(cmd, args, depth)
			}
			o := brig.ListOptions{Limit: 1000}
			var err error
			if o.Labels, err = pairs("--label", labels, false); err != nil {
				return err
			}
			for _, s := range states {
				if !slices.Contains(brig.States, brig.State(s)) {
					return brig.InvalidField("--state", "no state %q", s).WithHint("use one of: %v", brig.States)
				}
				o.States = append(o.States, brig.State(s))
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all := &brig.Page{}
				for {
					p, err := svc.List(ctx, o)
					if err != nil {
						return err
					}
					all.Sandboxes = append(all.Sandboxes, p.Sandboxes...)
					if o.Cursor = p.Next; p.Next == "" {
						break
					}
				}
				if c.asJSON {
					return c.printJSON(all)
				}
				var rows [][]string
				for _, s := range all.Sandboxes {
					rows = append(rows, []string{s.Spec.Name, string(s.State), s.Spec.Image, ago(s.Created), leaseOf(s), labelsOf(s)})
				}
				return c.table("NAME\tSTATE\tIMAGE\tCREATED\tLEASE\tLABELS", rows)
			})
		},
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only with this label, `K=V`")
	cmd.Flags().StringArrayVar(&states, "state", nil, "only in this `state`")
	cmd.Flags().IntVar(&depth, "depth", 1, "of files: how many `levels` down")
	return cmd
}

func leaseOf(s *brig.Sandbox) string {
	if !s.State.Live() {
		return "-"
	}
	return time.Until(s.Expires).Round(time.Second).String()
}

func labelsOf(s *brig.Sandbox) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(s.Spec.Labels)) {
		out = append(out, k+"="+s.Spec.Labels[k])
	}
	return strings.Join(out, ",")
}

func (c *cli) sandboxGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Show a sandbox as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Get(ctx, args[0])
				if err != nil {
					return err
				}
				return c.printJSON(s)
			})
		},
	}
}

func (c *cli) sandboxLogs() *cobra.Command {
	var tail int
	var times bool
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what its programs wrote, also after its end",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				r, err := svc.Logs(ctx, args[0], brig.LogOptions{Tail: tail, Times: times})
				if err != nil {
					return err
				}
				defer r.Close()
				_, err = io.Copy(c.stdout, r)
				return err
			})
		},
	}
	cmd.Flags().IntVar(&tail, "tail", 0, "only the last `n` lines")
	cmd.Flags().BoolVar(&times, "times", false, "when, before every line")
	return cmd
}

func (c *cli) sandboxExtend() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "extend NAME",
		Short: "Move the end of its lease",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Extend(ctx, args[0], ttl)
				if err != nil {
					return err
				}
				return c.showSandbox(s, s.Expires.Format(time.RFC3339))
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "from now on (default 5m)")
	return cmd
}

func (c *cli) sandboxStop() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "stop NAME…",
		Short: "Ask its programs to end, then end it; logs and exit stay",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(cmd, args, func(ctx context.Context, svc brig.Service, name string) (*brig.Sandbox, error) {
				return svc.Stop(ctx, name, grace)
			})
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Second, "time to end by themselves")
	return cmd
}

func (c *cli) sandboxKill() *cobra.Command {
	return &cobra.Command{
		Use:   "kill NAME…",
		Short: "End it at once; logs and exit stay",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(cmd, args, func(ctx context.Context, svc brig.Service, name string) (*brig.Sandbox, error) {
				return svc.Kill(ctx, name)
			})
		},
	}
}

func (c *cli) sandboxRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "End it and forget it",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(cmd, args, func(ctx context.Context, svc brig.Service, name string) (*brig.Sandbox, error) {
				return nil, svc.Remove(ctx, name)
			})
		},
	}
}

// each does something with every sandbox that is named, and prints the names.
func (c *cli) each(cmd *cobra.Command, names []string, f func(context.Context, brig.Service, string) (*brig.Sandbox, error)) error {
	return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
		for _, name := range names {
			s, err := f(ctx, svc, name)
			if err != nil {
				return err
			}
			if s == nil && c.asJSON {
				continue // it is gone: there is nothing to show
			}
			if err := c.showSandbox(s, name); err != nil {
				return err
			}
		}
		return nil
	})
}
