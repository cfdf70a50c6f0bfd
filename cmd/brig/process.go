package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c *cli) sandboxStart() *cobra.Command {
	var f execFlags
	var tag string
	cmd := &cobra.Command{
		Use:   "start NAME [flags] -- CMD ARG…",
		Short: "Start a command in it that nobody waits for; prints its pid",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			env, err := pairs("--env", f.env, true)
			if err != nil {
				return err
			}
			spec := brig.ProcessSpec{
				Command: brig.Command{Argv: args[1:], Env: env, Dir: f.cwd, User: f.user, Timeout: f.timeout},
				NoInput: true, Tag: tag,
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				p, err := svc.Processes(args[0]).Start(ctx, spec)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(p)
				}
				_, err = fmt.Fprintln(c.stdout, p.PID)
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	fl.StringVar(&f.cwd, "cwd", "", "working directory (default /workspace)")
	fl.StringVar(&f.user, "user", "", "user (default) or root")
	fl.DurationVar(&f.timeout, "timeout", 0, "wall time (default none)")
	fl.StringVar(&tag, "tag", "", "a `name` of your own for it")
	return cmd
}

func (c *cli) sandboxProcesses() *cobra.Command {
	return &cobra.Command{
		Use:   "ps NAME",
		Short: "List what was started in it, also what has ended of late",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Processes(args[0]).List(ctx)
				if err != nil {
					return err
				}
				return list(c, all, "PID\tSTATE\tSTARTED\tOUTPUT\tTAG\tCOMMAND", func(p *brig.ProcessInfo) []string {
					state := "running"
					if p.Result != nil {
						state = fmt.Sprint("exit ", p.Result.ExitCode)
					}
					tag := p.Spec.Tag
					if tag == "" {
						tag = "-"
					}
					return []string{fmt.Sprint(p.PID), state, ago(p.Started), brig.FormatBytes(p.Written), tag, oneLine(p.Spec.Command)}
				})
			})
		},
	}
}

// oneLine writes a command on a short line.
func oneLine(cmd brig.Command) string {
	what := strings.Join(cmd.Argv, " ") + cmd.Shell
	if r := []rune(what); len(r) > 60 {
		what = string(r[:59]) + "…"
	}
	return strings.ReplaceAll(what, "\n", " ")
}

// pidOf reads a process's id.
func pidOf(s string) (int, error) {
	pid, err := strconv.Atoi(s)
	if err != nil || pid < 1 {
		return 0, brig.InvalidField("PID", "%q is not the id of a process", s).WithHint("brig sandbox ps lists them")
	}
	return pid, nil
}

func (c *cli) sandboxAttach() *cobra.Command {
	var offset int64
	cmd := &cobra.Command{
		Use:   "attach NAME PID",
		Short: "Follow what a process writes; its exit code becomes ours",
		Long: `Follow what a process that was started writes, from the beginning as far as it is
kept, until it ends. Its exit code becomes ours. Interrupting this leaves it running.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := pidOf(args[1])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return svc.Processes(args[0]).Attach(ctx, pid, offset, func(e brig.ProcessEvent) error {
					var err error
					switch {
					case e.End != nil && c.asJSON:
						c.code = e.End.ExitCode
						err = c.printJSON(e.End)
					case e.End != nil:
						c.ended(e.End)
					case c.asJSON:
					case e.From == brig.FromStderr:
						_, err = c.stderr.Write(e.Output)
					default:
						_, err = c.stdout.Write(e.Output)
					}
					return err
				})
			})
		},
	}
	cmd.Flags().Int64Var(&offset, "offset", 0, "where in all of its output to begin, in `bytes`; -1 is from now on")
	return cmd
}

func (c *cli) sandboxSignal() *cobra.Command {
	return &cobra.Command{
		Use:   "signal NAME PID [SIGNAL]",
		Short: "Send a signal to a process and its group (default TERM)",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := pidOf(args[1])
			if err != nil {
				return err
			}
			name := "SIGTERM"
			if len(args) == 3 {
				name = "SIG" + strings.TrimPrefix(strings.ToUpper(args[2]), "SIG")
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return svc.Processes(args[0]).Signal(ctx, pid, name)
			})
		},
	}
}
