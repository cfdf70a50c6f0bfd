package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// execFlags are the flags of exec and shell.
type execFlags struct {
	env         []string
	cwd, user   string
	timeout     time.Duration
	interactive bool
	terminal    bool
	detach      bool
}

func (f *execFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringVar(&f.cwd, "cwd", "", "working directory (default /workspace)")
	fl.StringVar(&f.user, "user", "", "run as user (default) or root")
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit (default 30s; none with a terminal)")
	fl.BoolVarP(&f.interactive, "stdin", "i", false, "pass standard input to the command")
	fl.BoolVar(&f.detach, "survive", false, "let the command continue if this one is interrupted")
}

func (f *execFlags) command() (brig.Command, error) {
	env, err := parsePairs("--env", f.env, true)
	return brig.Command{Env: env, Dir: f.cwd, User: f.user, Timeout: f.timeout, Survive: f.detach}, err
}

func (c processCommands) exec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME CMD [ARG…]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox, without a shell. The exit code is the command's. Flags for
brig come before CMD; -- before CMD is optional.

The output includes that of the command's children, for at most 5 s after the command has
ended. To leave a server behind, redirect its output, or use brig sandbox start.`,
		Example: `  brig sandbox exec one ls -la
  brig sandbox exec -it one bash
  brig sandbox exec -e DEBUG=1 one -- sh -c 'echo $DEBUG'`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := f.command()
			if err != nil {
				return err
			}
			run.Argv = args[1:]
			if !f.terminal {
				return c.runCommand(cmd, args[0], run, f.interactive)
			}
			tty, ok := c.stdin.(*os.File)
			if !ok || !isTerminal(tty) || c.asJSON {
				return brig.InvalidField("--tty", "standard input is not a terminal").WithHint("leave out --tty (-t)")
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.openTerminal(ctx, svc, args[0], run, tty)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&f.terminal, "tty", "t", false, "run the command on a terminal; Ctrl-P Ctrl-Q leaves it running")
	return cmd
}

// runCommand runs a command and exits with its exit code.
func (c processCommands) runCommand(cobraCmd *cobra.Command, name string, cmd brig.Command, interactive bool) error {
	var sio brig.IO
	if interactive {
		sio.Stdin = c.stdin
	}
	if !c.asJSON {
		sio.Stdout, sio.Stderr = c.guestOutput(c.stdout), c.guestOutput(c.stderr)
		defer func() { _ = errors.Join(finish(sio.Stdout), finish(sio.Stderr)) }() // fails only if the output cannot be written
	}
	return c.use(cobraCmd, false, func(ctx context.Context, svc brig.Service) error {
		res, err := svc.Exec(ctx, name, cmd, sio)
		if err != nil {
			return err
		}
		if c.asJSON {
			c.code = res.ExitCode
			return c.printJSON(res)
		}
		c.reportEnd(res)
		return nil
	})
}

// reportEnd sets brig's exit code to the exit code of an execution. If the exit code does not
// imply why the execution ended, reportEnd prints the reason.
func (c processCommands) reportEnd(res *brig.Result) {
	c.code = res.ExitCode
	switch {
	case res.TimedOut:
		hint := ""
		if c.cmd != nil && c.cmd.Flag("timeout") != nil {
			hint = "raise --timeout"
		}
		printProblem(c.stderr, "the command timed out after "+res.Duration.Round(time.Millisecond).String(), brig.Timeout.Code(), hint)
	case res.OOMKilled:
		printProblem(c.stderr, "the sandbox exceeded its memory limit", brig.OutOfMemory.Code(), "create a sandbox with more: brig sandbox create --memory SIZE")
	case res.SandboxEnded != "":
		printProblem(c.stderr, "the sandbox ended while the command ran ("+string(res.SandboxEnded)+")", brig.FailedPrecondition.Code(), "create a new one; logs and exit of this one are kept")
	}
}

func (c processCommands) executions() *cobra.Command {
	return &cobra.Command{
		Use:   "execs NAME",
		Short: "List the executions of a sandbox, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				execs, err := svc.ListExecs(ctx, args[0])
				if err != nil {
					return err
				}
				return list(c.cli, execs, "EXEC\tSTATE\tSTARTED\tDURATION\tCOMMAND", func(x *brig.Execution) []string {
					state := "running"
					if x.Done {
						state = fmt.Sprint("exit ", x.ExitCode)
					}
					return []string{x.ExecID, state, relativeTime(x.Started), x.Duration.Round(time.Millisecond).String(), formatOneLine(x.Command)}
				})
			})
		},
	}
}
