package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/ui"
)

// serverLogFile is the log file of a server that quickstart started.
const serverLogFile = "serve.log"

// quickstartTimeout bounds how long quickstart waits for a server to start.
const quickstartTimeout = time.Minute

func (c hostCommands) quickstartCommand() *cobra.Command {
	q := quickstart{hostCommands: c}
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Check this machine, start a server, and print the first steps",
		Long: `Check this machine, start a server in the background unless one serves the data
folder, and print the address of the console and the first commands.

The server is brig serve with the same data folder and configuration. Its log is in the
data folder; it runs until it is stopped with the printed command or the machine stops.
With --unit, systemd runs the server instead, and starts it again with the machine. Only
root may then be able to replace the program and the configuration file, because the unit
runs as root.

On a terminal, the command also prints a link that signs in to the console once.`,
		Example: `  brig quickstart
  sudo brig quickstart --unit
  brig quickstart --listen 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.url != "" {
				return brig.InvalidField("--url", "quickstart starts a server on this machine").WithHint("leave out --url, and unset BRIG_URL")
			}
			return q.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&q.unit, "unit", false, "run the server as a unit of systemd, as root")
	cmd.Flags().StringVar(&q.listen, "listen", "", "`address` of the server (default "+defaultListen+")")
	return cmd
}

// quickstart prepares a server on this machine.
type quickstart struct {
	hostCommands
	dir, listen string
	unit        bool // systemd runs the server
}

func (q *quickstart) run(ctx context.Context) (err error) {
	if q.dir, err = q.resolveDataFolder(); err != nil {
		return err
	}
	if q.unit {
		if err := checkSystemd(); err != nil {
			return err
		}
	}
	server := readAnnouncement(q.dir)
	url := server.URL
	switch {
	case url != "" && q.unit:
		if err := q.useRunningUnit(ctx, server); err != nil {
			return err
		}
	case url != "":
		q.reportStep("a server runs already")
	default:
		if err := q.checkMachine(ctx); err != nil {
			return err
		}
		start := q.startServer
		if q.unit {
			start = q.startUnit
		}
		if url, err = start(ctx); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(q.stdout, `
server   %s
console  %s%s
docs     %s%s
key      %s (commands of this user need none)

Try:
  brig run -c 'print(6*7)'
  brig sandbox create one
  brig sandbox shell one
`, url, url, ui.Prefix, url, ui.DocsPrefix, filepath.Join(q.dir, keyFile))
	if err != nil || !q.terminal && !isTerminal(q.stdout) {
		return err
	}
	if link, linkErr := newSignInLink(ctx, q.dir, url); linkErr == nil { // an older server has no socket
		_, err = fmt.Fprintf(q.stdout, "\nSign in to the console (once, within %.0f minutes):\n  %s\n", signInTTL.Minutes(), link)
	}
	return err
}

// reportStep reports a completed step to the user.
func (q *quickstart) reportStep(format string, args ...any) {
	fmt.Fprintln(q.stderr, colorize(q.stderr, green, "ok"), " "+sanitizeText(fmt.Sprintf(format, args...)))
}

// checkMachine runs doctor's checks, and prints those that failed.
func (q *quickstart) checkMachine(ctx context.Context) error {
	bad := 0
	for _, f := range q.runChecks(ctx) {
		if f.State == "fail" {
			bad++
			printFinding(q.stderr, f)
		}
	}
	if bad > 0 {
		return brig.Errorf(brig.NotInitialized, "this machine cannot run sandboxes: %d checks failed", bad).WithHint("fix what is listed above, and run brig quickstart again; brig doctor runs all checks")
	}
	q.reportStep("this machine can run sandboxes")
	return nil
}

// startServer starts brig serve in the background, and returns its URL once it
// is ready.
func (q *quickstart) startServer(ctx context.Context) (string, error) {
	if err := makeFolder(q.dir); err != nil {
		return "", err
	}
	file := filepath.Join(q.dir, serverLogFile)
	log, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", unwritableError("", file, err)
	}
	defer log.Close()
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	args := []string{"serve", "--data-dir", q.dir}
	if q.configFile != "" {
		args = append(args, "--config", q.configFile)
	}
	if q.listen != "" {
		args = append(args, "--listen", q.listen)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the server outlives this terminal
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(quickstartTimeout)
	for {
		if url := serverOf(q.dir); url != "" {
			q.reportStep("started a server in the background: stop it with kill %d; its log is %s", cmd.Process.Pid, file)
			return url, nil
		}
		select {
		case err := <-ended:
			return "", q.newServerError(file, err)
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), cmd.Process.Signal(syscall.SIGTERM))
		case <-deadline:
			_ = cmd.Process.Signal(syscall.SIGTERM) // the server may have exited just now
			return "", brig.Errorf(brig.ConnectionFailed, "the server did not start within %v", quickstartTimeout).WithHint("read its log: %s", file)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// newServerError returns the error for a server that did not start, with the end of
// its log.
func (q *quickstart) newServerError(file string, cause error) error {
	b, err := os.ReadFile(file)
	if err == nil {
		const tailSize = 2000
		fmt.Fprint(q.stderr, sanitizeText(string(b[max(0, len(b)-tailSize):])))
	}
	return brig.Errorf(brig.ConnectionFailed, "the server did not start").WithHint("fix the error above; the log is %s", file).Because(cause)
}
