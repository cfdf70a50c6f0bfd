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

// interactiveShell starts bash if the image has it, or else sh.
const interactiveShell = "command -v bash >/dev/null 2>&1 && exec bash -i; exec sh -i"

// replaySize is the number of bytes of recent output that are displayed when a user reattaches.
const replaySize = 8 << 10

// resetModes resets terminal modes that a program may have set and that persist after
// detaching: bracketed paste, a hidden cursor, colors.
const resetModes = "\x1b[?2004l\x1b[?25h\x1b[0m"

func (c processCommands) shell() *cobra.Command {
	var f execFlags
	var attach int
	cmd := &cobra.Command{
		Use:   "shell NAME [SCRIPT]",
		Short: "Open a shell in a sandbox, or run a shell script",
		Long: `Open a shell in a sandbox, on a terminal of its own. Ctrl-P Ctrl-Q detaches and leaves
the shell running; --attach PID attaches to it again. With a script, or if standard
input is not a terminal, the command runs the script instead.`,
		Example: `  brig sandbox shell one
  brig sandbox shell one 'echo a | tr a b'
  brig sandbox shell one < script.sh`,
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
					return c.reattach(ctx, svc, args[0], attach, tty)
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
			return c.runCommand(cmd, args[0], run, f.interactive)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&attach, "attach", 0, "attach to the terminal of the process `pid` again")
	return cmd
}

// openTerminal starts a command (default: a shell) with a terminal, and
// attaches the user's terminal to it.
func (c processCommands) openTerminal(ctx context.Context, svc brig.Service, name string, run brig.Command, tty *os.File) error {
	if len(run.Argv) == 0 {
		run.Shell = interactiveShell
	}
	if _, isSet := run.Env["TERM"]; !isSet && os.Getenv("TERM") != "" {
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
	return c.attachTerminal(ctx, svc, name, p.PID, 0, tty)
}

// reattach attaches the user's terminal to a process that already has one.
func (c processCommands) reattach(ctx context.Context, svc brig.Service, name string, pid int, tty *os.File) error {
	all, err := svc.Processes(name).List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p *brig.ProcessInfo) bool { return p.PID == pid })
	if i < 0 {
		return brig.Errorf(brig.NotFound, "no process %d in sandbox %s", pid, name).WithHint("list the processes with: brig sandbox ps %s", name)
	}
	if all[i].Spec.Terminal == nil {
		return brig.Errorf(brig.FailedPrecondition, "process %d has no terminal", pid).
			WithHint("follow its output with: brig sandbox attach %s %d", name, pid)
	}
	return c.attachTerminal(ctx, svc, name, pid, max(0, all[i].Written-replaySize), tty)
}

// attachTerminal connects the terminals until the process ends or the user detaches. The exit code
// of brig is that of the process.
func (c processCommands) attachTerminal(ctx context.Context, svc brig.Service, name string, pid int, from int64, tty *os.File) error {
	s := &session{in: tty, out: c.stdout, proc: svc.Processes(name), pid: pid}
	end, err := s.run(ctx, from)
	if err == nil {
		c.reportEnd(end)
		return nil
	}
	if isTerminal(c.stdout) {
		fmt.Fprint(c.stdout, resetModes)
	}
	fmt.Fprintln(c.stderr)
	switch brig.KindOf(err) {
	case brig.NotFound, brig.FailedPrecondition: // there is no process to attach to
	default:
		fmt.Fprintf(c.stderr, "brig: detached; attach again with: brig sandbox shell %s --attach %d\n", name, pid)
	}
	if errors.Is(err, errDetached) {
		return nil
	}
	return err
}
