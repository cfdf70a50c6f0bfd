package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// interactiveShell is the best shell that an image has, for people.
const interactiveShell = "command -v bash >/dev/null 2>&1 && exec bash -i; exec sh -i"

// replayed is how much of a terminal's output is shown to who comes back.
const replayed = 8 << 10

// calm undoes what a program that goes on may have asked of the terminal:
// marked pastes, a hidden cursor, colors.
const calm = "\x1b[?2004l\x1b[?25h\x1b[0m"

func (c *cli) sandboxShell() *cobra.Command {
	var f execFlags
	var attach int
	cmd := &cobra.Command{
		Use:   "shell NAME [SCRIPT]",
		Short: "Open a terminal in it, or run a shell script",
		Long: `Open a shell in a sandbox, on a terminal of its own. Ctrl-P Ctrl-Q leaves it
running; --attach PID comes back to it. With a script, or where standard input is
no terminal, a shell runs that instead.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := f.command()
			if err != nil {
				return err
			}
			run.Shell = strings.Join(args[1:], " ")
			tty, _ := c.stdin.(*os.File)
			onTerminal := isTerminal(c.stdin) && !c.asJSON
			switch {
			case cmd.Flags().Changed("attach"):
				if !onTerminal || run.Shell != "" {
					return brig.InvalidField("--attach", "needs a terminal and no script").
						WithHint("follow a process's output with: brig sandbox attach %s %d", args[0], attach)
				}
				return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
					return c.comeBack(ctx, svc, args[0], attach, tty)
				})
			case run.Shell == "" && onTerminal:
				return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
					return c.openTerminal(ctx, svc, args[0], run, tty)
				})
			case run.Shell == "":
				run.Argv, f.interactive = []string{"/bin/sh"}, true
				if run.Timeout == 0 {
					run.Timeout = 24 * time.Hour
				}
			}
			return c.exec(cmd, args[0], run, f.interactive)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&attach, "attach", 0, "come back to the terminal of the process `pid`")
	return cmd
}

// openTerminal starts a shell with a terminal and gives it the user's.
func (c *cli) openTerminal(ctx context.Context, svc brig.Service, name string, run brig.Command, tty *os.File) error {
	run.Shell = interactiveShell
	if _, given := run.Env["TERM"]; !given && os.Getenv("TERM") != "" {
		if run.Env == nil {
			run.Env = map[string]string{}
		}
		run.Env["TERM"] = os.Getenv("TERM")
	}
	size, _ := sizeOf(tty)
	p, err := svc.Processes(name).Start(ctx, brig.ProcessSpec{Command: run, Terminal: &size, Tag: "shell"})
	if err != nil {
		return err
	}
	return c.join(ctx, svc, name, p.PID, 0, tty)
}

// comeBack gives the user's terminal to a process that has one already.
func (c *cli) comeBack(ctx context.Context, svc brig.Service, name string, pid int, tty *os.File) error {
	all, err := svc.Processes(name).List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p *brig.ProcessInfo) bool { return p.PID == pid })
	if i < 0 {
		return brig.Errorf(brig.NotFound, "process with pid %d not found", pid).WithHint("brig sandbox ps %s", name)
	}
	if all[i].Spec.Terminal == nil {
		return brig.Errorf(brig.FailedPrecondition, "process %d has no terminal", pid).
			WithHint("follow its output with: brig sandbox attach %s %d", name, pid)
	}
	return c.join(ctx, svc, name, pid, max(0, all[i].Written-replayed), tty)
}

// join joins the terminals until the process ends, whose exit code becomes
// ours, or the user leaves.
func (c *cli) join(ctx context.Context, svc brig.Service, name string, pid int, from int64, tty *os.File) error {
	s := &session{in: tty, out: c.stdout, proc: svc.Processes(name), pid: pid}
	end, err := s.run(ctx, from)
	if err == nil {
		c.ended(end)
		return nil
	}
	if isTerminal(c.stdout) {
		fmt.Fprint(c.stdout, calm)
	}
	fmt.Fprintln(c.stderr)
	switch brig.KindOf(err) {
	case brig.NotFound, brig.FailedPrecondition: // there is nothing to come back to
	default:
		fmt.Fprintf(c.stderr, "brig: it may run on; come back with: brig sandbox shell %s --attach %d\n", name, pid)
	}
	if errors.Is(err, errDetached) {
		return nil
	}
	return err
}
