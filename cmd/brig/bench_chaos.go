//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/store/sqlite"
)

func (c benchCommands) chaosCommand() *cobra.Command {
	var kills int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill servers and parts of sandboxes under load, and count what leaks or is lost",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seed == 0 {
				seed = rand.Uint64()
			}
			return c.runChaos(cmd.Context(), kills, seed)
		},
	}
	cmd.Flags().IntVar(&kills, "kills", 200, "how many processes to kill")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "repeats the victims of an earlier run (default: random)")
	return cmd
}

// lab is a temporary data folder and the servers that run on it.
type lab struct {
	dir, config string
	remove      func()
}

// newLab creates a lab. The pool of its servers has a fixed small size, so that an idle server
// always has the same number of sandboxes.
func newLab() (*lab, error) {
	root, err := os.MkdirTemp("", "brig-lab-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: filepath.Join(root, "data"), config: filepath.Join(root, "brig.yaml"), remove: func() { os.RemoveAll(root) }}
	err = errors.Join(os.Mkdir(l.dir, 0o700), os.WriteFile(l.config, []byte("pool: {size: 2, memory: 64MiB}\n"), 0o600))
	return l, err
}

// start starts a server on the lab's data folder and waits until it is ready.
func (l *lab) start(ctx context.Context) (*chaos.Server, error) {
	log, err := os.OpenFile(filepath.Join(filepath.Dir(l.dir), "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, "serve", "--listen", "127.0.0.1:0", "--data-dir", l.dir, "--config", l.config)
	cmd.Args[0] = "brig" // argv[0] selects the program
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s := &chaos.Server{PID: cmd.Process.Pid}
	s.Kill = func() error {
		_ = cmd.Process.Kill() // the process may have ended
		if err := <-ended; err != nil && cmd.ProcessState == nil {
			return err // the wait failed; an exit by a signal is not an error
		}
		return nil
	}
	s.Stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return <-ended
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(5 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(err, s.Kill())
		}
		select {
		case err := <-ended:
			b, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("the server ended: %w: %s", err, b[max(0, len(b)-2000):])
		default:
		}
		if l.isReady(ctx, s) {
			return s, nil
		}
	}
	return nil, errors.Join(errors.New("the server is not ready after a minute"), s.Kill())
}

// get requests a path from the current server.
func (l *lab) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, socketURL+path, nil)
	if err != nil {
		return nil, err
	}
	t := socketTransport(l.dir)
	t.DisableKeepAlives = true
	return t.RoundTrip(req)
}

// isReady reports whether a server is ready. If it is, ready sets its Service.
func (l *lab) isReady(ctx context.Context, s *chaos.Server) bool {
	if readAnnouncement(l.dir).PID != s.PID {
		return false // there is no announcement, or it is from an earlier server
	}
	resp, err := l.get(ctx, "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	svc, err := client.New(socketOptions(l.dir))
	s.Service = svc
	return err == nil && resp.StatusCode == http.StatusOK
}

// readEvents reads the whole audit log.
func (l *lab) readEvents(ctx context.Context) ([]brig.Event, error) {
	store, err := sqlite.Open(ctx, filepath.Join(l.dir, dbFile))
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return store.Events(ctx, 1<<30)
}

func (c benchCommands) runChaos(ctx context.Context, kills int, seed uint64) error {
	l, err := newLab()
	if err != nil {
		return err
	}
	defer l.remove()
	r, err := chaos.Run(ctx, chaos.Options{Dir: l.dir, Start: l.start, Events: l.readEvents, Kills: kills, Seed: seed, Say: c.printProgress})
	if err != nil {
		return err
	}
	if !r.IsClean() {
		c.code = 1
	}
	if c.asJSON {
		return c.printJSON(map[string]any{
			"report": r, "clean": r.IsClean(), "took_s": r.Took.Seconds(),
			"ready_p50_ms": chaos.Percentile(r.Ready, 50).Milliseconds(), "ready_p99_ms": chaos.Percentile(r.Ready, 99).Milliseconds(),
			"first_run_p50_ms": chaos.Percentile(r.First, 50).Milliseconds(), "first_run_p99_ms": chaos.Percentile(r.First, 99).Milliseconds(),
		})
	}
	return c.printChaos(r)
}

func (c benchCommands) printChaos(r *chaos.Report) error {
	fmt.Fprintf(c.stdout, "%d kills in %v, seed %d; meanwhile %d runs (%d from the pool), %d sandboxes, %d executions, %d codes\n",
		sumCounts(r.Killed), r.Took.Round(time.Second), r.Seed, r.Runs, r.Hits, r.Sandboxes, r.Executions, r.Codes)
	var rows [][]string
	for _, who := range slices.Sorted(maps.Keys(r.Killed)) {
		rows = append(rows, []string{"killed: " + who, fmt.Sprint(r.Killed[who]), ""})
	}
	for _, what := range []string{"processes", "cgroups", "mounts", "folders", "files", "descriptors", "memory"} {
		rows = append(rows, []string{"leaked: " + what, fmt.Sprint(len(r.Leaks[what])), firstOrEmpty(r.Leaks[what])})
	}
	rows = append(rows,
		[]string{"acknowledged and checked", fmt.Sprint(r.Checked), ""},
		[]string{"acknowledged and lost", fmt.Sprint(len(r.Lost)), firstOrEmpty(r.Lost)},
		[]string{"acknowledged, no audit event", fmt.Sprint(r.Missing), ""},
		[]string{"errors that no death explains", fmt.Sprint(len(r.Unexplained)), firstOrEmpty(r.Unexplained)},
		[]string{"ready again, p50 / p99", formatMilliseconds(chaos.Percentile(r.Ready, 50)) + " / " + formatMilliseconds(chaos.Percentile(r.Ready, 99)), ""},
		[]string{"first one-shot, p50 / p99", formatMilliseconds(chaos.Percentile(r.First, 50)) + " / " + formatMilliseconds(chaos.Percentile(r.First, 99)), ""},
		[]string{"server's memory, idle", brig.FormatBytes(r.Before.RSS>>20<<20) + " → " + brig.FormatBytes(r.After.RSS>>20<<20), ""},
		[]string{"server's descriptors, idle", fmt.Sprintf("%d → %d", r.Before.Descriptors, r.After.Descriptors), ""},
	)
	return c.printTable("WHAT\tCOUNT\tFOR EXAMPLE", rows)
}

// printProgress prints progress unless the output is JSON.
func (c benchCommands) printProgress(format string, args ...any) {
	if !c.asJSON {
		fmt.Fprintf(c.stderr, format+"\n", args...)
	}
}

func sumCounts(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func formatMilliseconds(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
