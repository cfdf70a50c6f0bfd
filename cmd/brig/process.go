package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// processCommands creates the subcommands of brig sandbox for commands and processes.
type processCommands struct{ *cli }

// commands returns the commands for the processes of a sandbox.
func (c processCommands) commands() []*cobra.Command {
	return []*cobra.Command{c.exec(), c.executions(), c.shell(), c.start(), c.list(), c.attach(), c.signal()}
}

func (c processCommands) start() *cobra.Command {
	var f execFlags
	var tag string
	cmd := &cobra.Command{
		Use:   "start [flags] NAME CMD [ARG…]",
		Short: "Start a background process in a sandbox, and print its PID",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			env, err := parsePairs("--env", f.env, true)
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
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringVar(&f.cwd, "cwd", "", "working directory (default /workspace)")
	fl.StringVar(&f.user, "user", "", "run as user (default) or root")
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit (default none)")
	fl.StringVar(&tag, "tag", "", "give the process this `name`")
	return cmd
}

func (c processCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:   "ps NAME",
		Short: "List the background processes of a sandbox, and recently ended ones",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Processes(args[0]).List(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "PID\tSTATE\tSTARTED\tOUTPUT\tTAG\tCOMMAND", func(p *brig.ProcessInfo) []string {
					state := "running"
					if p.Result != nil {
						state = fmt.Sprint("exit ", p.Result.ExitCode)
					}
					tag := p.Spec.Tag
					if tag == "" {
						tag = "-"
					}
					return []string{fmt.Sprint(p.PID), state, relativeTime(p.Started), brig.FormatBytes(p.Written), tag, formatOneLine(p.Spec.Command)}
				})
			})
		},
	}
}

// formatOneLine formats a command as one short line.
func formatOneLine(cmd brig.Command) string {
	what := strings.Join(cmd.Argv, " ") + cmd.Shell
	if r := []rune(what); len(r) > 60 {
		what = string(r[:59]) + "…"
	}
	return strings.ReplaceAll(what, "\n", " ")
}

// parsePID parses a process ID.
func parsePID(s string) (int, error) {
	pid, err := strconv.Atoi(s)
	if err != nil || pid < 1 {
		return 0, brig.InvalidField("PID", "%q is not a process id", brig.Clip(s, 40)).WithHint("list the processes with: brig sandbox ps NAME")
	}
	return pid, nil
}

func (c processCommands) attach() *cobra.Command {
	var offset int64
	cmd := &cobra.Command{
		Use:   "attach NAME PID",
		Short: "Follow the output of a background process",
		Long: `Follow the output of a background process until it ends, beginning with the oldest
output that is kept. The exit code is the process's. Interrupting the command leaves the
process running.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := parsePID(args[1])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				stdout, stderr := c.guestOutput(c.stdout), c.guestOutput(c.stderr)
				defer func() { _ = finish(stdout) }() // fails only if the output cannot be written
				defer func() { _ = finish(stderr) }() // fails only if the output cannot be written
				return svc.Processes(args[0]).Attach(ctx, pid, offset, func(e brig.ProcessEvent) error {
					var err error
					switch {
					case e.End != nil && c.asJSON:
						c.code = e.End.ExitCode
						err = c.printJSON(e.End)
					case e.End != nil:
						c.reportEnd(e.End)
					case c.asJSON:
					case e.From == brig.FromStderr:
						_, err = stderr.Write(e.Output)
					default:
						_, err = stdout.Write(e.Output)
					}
					return err
				})
			})
		},
	}
	cmd.Flags().Int64Var(&offset, "offset", 0, "begin after this many `bytes` of output; -1 prints only new output")
	return cmd
}

func (c processCommands) signal() *cobra.Command {
	return &cobra.Command{
		Use:   "signal NAME PID [SIGNAL]",
		Short: "Send a signal to a background process and its group (default TERM)",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := parsePID(args[1])
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
