package main

import (
	"context"
	"fmt"
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
	survive     bool
}

func (f *execFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	fl.StringVar(&f.cwd, "cwd", "", "working directory (default /workspace)")
	fl.StringVar(&f.user, "user", "", "user (default) or root")
	fl.DurationVar(&f.timeout, "timeout", 0, "wall time (default 30s)")
	fl.BoolVarP(&f.interactive, "stdin", "i", false, "pass standard input on")
	fl.BoolVar(&f.survive, "survive", false, "let it run on when this command is interrupted")
}

func (f *execFlags) command() (brig.Command, error) {
	env, err := pairs("--env", f.env, true)
	return brig.Command{Env: env, Dir: f.cwd, User: f.user, Timeout: f.timeout, Survive: f.survive}, err
}

func (c *cli) sandboxExec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] -- CMD ARG…",
		Short: "Run a command in it; its exit code becomes ours",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := f.command()
			if err != nil {
				return err
			}
			run.Argv = args[1:]
			return c.exec(cmd, args[0], run, f.interactive)
		},
	}
	f.add(cmd)
	return cmd
}

// exec runs a command and makes its exit code ours.
func (c *cli) exec(cobraCmd *cobra.Command, name string, cmd brig.Command, interactive bool) error {
	var sio brig.IO
	if interactive {
		sio.Stdin = c.stdin
	}
	if !c.asJSON {
		sio.Stdout, sio.Stderr = c.stdout, c.stderr
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
		c.ended(res)
		return nil
	})
}

// ended makes the exit code of what has ended ours, and says why it is that
// where the code does not tell.
func (c *cli) ended(res *brig.Result) {
	c.code = res.ExitCode
	switch {
	case res.TimedOut:
		fmt.Fprintf(c.stderr, "brig: the command did not end within its time (%s)\n", brig.Timeout.Code())
	case res.OOMKilled:
		fmt.Fprintf(c.stderr, "brig: the sandbox used more memory than it may (%s)\n", brig.OutOfMemory.Code())
	}
}

func (c *cli) sandboxExecs() *cobra.Command {
	return &cobra.Command{
		Use:   "execs NAME",
		Short: "List what was run in it, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				execs, err := svc.ListExecs(ctx, args[0])
				if err != nil {
					return err
				}
				return list(c, execs, "EXEC\tSTATE\tSTARTED\tDURATION\tCOMMAND", func(x *brig.Execution) []string {
					state := "running"
					if x.Done {
						state = fmt.Sprint("exit ", x.ExitCode)
					}
					return []string{x.ExecID, state, ago(x.Started), x.Duration.Round(time.Millisecond).String(), oneLine(x.Command)}
				})
			})
		},
	}
}
