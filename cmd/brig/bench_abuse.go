//go:build bench

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/image"
)

// abuseOptions selects the cases and their duration.
type abuseOptions struct {
	loadTime, quiet time.Duration
	cases           []string
}

// maxAbuseRatio is the maximum ratio of the victim's p99 latency under attack
// to that without an attack.
const maxAbuseRatio = 3

func (c benchCommands) abuseCommand() *cobra.Command {
	var o abuseOptions
	cmd := &cobra.Command{
		Use:   "abuse",
		Short: "Attack each bound of a server as a viewer, a member and a sandbox, beside another tenant's runs",
		Long: `Attack each bound of a server as a viewer, a member and a sandbox, beside another tenant's runs.

Each case has a server of its own, without a pool, and an attacker in a process of
its own at nice 19, so that the server is measured and not a contest for the
processors of two clients. Another tenant, the victim, runs one one-shot after
another: first alone, for the time of --quiet, then beside the attack. The table has
the server's peaks of memory (VmHWM), descriptors and goroutines, the growth of what
the data folder takes on the disk, files without a name included, and the victim's
p50 and p99.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.runAbuse(cmd.Context(), o) },
	}
	cmd.Flags().DurationVar(&o.loadTime, "for", time.Minute, "how long each attack lasts")
	cmd.Flags().DurationVar(&o.quiet, "quiet", 20*time.Second, "how long the victim runs alone before it")
	cmd.Flags().StringSliceVar(&o.cases, "case", nil, "run these cases only: "+strings.Join(abuseNames(), ", "))
	cmd.AddCommand(c.attackerCommand())
	return cmd
}

func abuseNames() (names []string) {
	for _, a := range abuses() {
		names = append(names, a.name)
	}
	return names
}

func (c benchCommands) runAbuse(ctx context.Context, o abuseOptions) error {
	all := abuses()
	for _, name := range o.cases {
		if !slices.Contains(abuseNames(), name) {
			return brig.InvalidField("case", "there is no case %q", name).WithHint("the cases are %s", strings.Join(abuseNames(), ", "))
		}
	}
	r := &report{Bench: "abuse", About: fmt.Sprintf("one-shots of %q of one tenant without a pool: alone for %v, then beside an attack of another tenant for %v", benchProgram, o.quiet, o.loadTime)}
	for _, a := range all {
		if len(o.cases) > 0 && !slices.Contains(o.cases, a.name) {
			continue
		}
		c.printProgress("%s: %s", a.name, a.description)
		if err := c.runOneAbuse(ctx, a, o, r); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return c.printLoad(r)
}

// runOneAbuse runs one case on its own server.
func (c benchCommands) runOneAbuse(ctx context.Context, a abuse, o abuseOptions, r *report) (err error) {
	l, err := newLab()
	if err != nil {
		return err
	}
	defer l.remove()
	attacker, err := startAttacker(ctx, a.name)
	if err != nil {
		return err
	}
	defer func() { attacker.end() }()
	if err := os.WriteFile(l.config, []byte(attacker.world.config(l)), 0o600); err != nil {
		return err
	}
	s, err := l.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.endAbuse(ctx, s, attacker)) }()
	victim, order, err := l.createAbuseTenants(ctx, s, a)
	if err != nil {
		return err
	}
	if _, err := runFor(ctx, victim, 2*time.Second); err != nil { // warm up
		return err
	}
	quiet, err := runFor(ctx, victim, o.quiet)
	if err != nil {
		return err
	}
	order.For = o.loadTime
	w := l.watchAbuse(ctx, s.PID)
	if err := attacker.begin(order); err != nil {
		return errors.Join(err, w.stop())
	}
	under, err := runFor(ctx, victim, o.loadTime)
	if err = errors.Join(err, w.stop()); err != nil {
		return err
	}
	counts, err := attacker.readCounts()
	if err != nil {
		return err
	}
	addAbuseRow(r, a, quiet, under, w, counts)
	return nil
}

// victims holds the results of the victim, a tenant that runs one program after another.
type victims struct {
	took   []time.Duration
	failed map[string]int
}

// runFor runs one program after another as the victim. Calls that fail or are rejected by the
// server are counted, but they do not end the benchmark.
func runFor(ctx context.Context, c *client.Client, loadTime time.Duration) (*victims, error) {
	v := &victims{failed: map[string]int{}}
	for end := time.Now().Add(loadTime); time.Now().Before(end); {
		begin := time.Now()
		out, err := c.Run(ctx, brig.Program{Language: brig.Python, Code: benchProgram}, brig.IO{})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch {
		case err != nil:
			v.failed[brig.AsError(err).Kind.Code()]++
			time.Sleep(50 * time.Millisecond)
		case string(out.Stdout.Head) != benchOutput:
			v.failed["output"]++
		default:
			v.took = append(v.took, time.Since(begin))
		}
	}
	return v, nil
}

// addAbuseRow adds the results of one case to the report.
func addAbuseRow(r *report, a abuse, quiet, under *victims, w *abuseWatch, counts map[string]int64) {
	row := r.row(a.name)
	row.set("count", float64(len(under.took))).
		set("quiet_p50_ms", millis(quantile(quiet.took, 0.5))).set("quiet_p99_ms", millis(quantile(quiet.took, 0.99))).
		set("p50_ms", millis(quantile(under.took, 0.5))).set("p99_ms", millis(quantile(under.took, 0.99))).
		set("rss_mib", float64(w.rss)/float64(brig.MiB)).set("disk_mib", float64(w.disk)/float64(brig.MiB)).
		set("descriptors", float64(w.descriptors)).set("goroutines", float64(w.goroutines))
	ratio := 0.0
	if q := quantile(quiet.took, 0.99); q > 0 {
		ratio = float64(quantile(under.took, 0.99)) / float64(q)
		row.set("ratio", ratio)
	}
	var done []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		done = append(done, fmt.Sprintf("%d %s", counts[k], k))
	}
	row.note = a.role + ", " + a.limitName + ": " + strings.Join(done, ", ")
	if len(quiet.failed)+len(under.failed) > 0 {
		row.note += fmt.Sprintf("; the victim's failures: quiet %v, under attack %v", quiet.failed, under.failed)
	}
	r.requireAtMost(a.name+": p99 under attack / quiet", ratio, maxAbuseRatio)
}

// createAbuseTenants creates the tenants of the victim and the attacker. Both have the default
// quota. The attacker's quota is also limited to abuseSandboxes sandboxes.
func (l *lab) createAbuseTenants(ctx context.Context, s *chaos.Server, a abuse) (*client.Client, *abuseRequest, error) {
	addr := readAnnouncement(l.dir)
	root, ok := s.Service.(*client.Client)
	if !ok {
		return nil, nil, fmt.Errorf("the server's client is a %T", s.Service)
	}
	quota := brig.DefaultQuota()
	quota.Sandboxes = abuseSandboxes
	for _, t := range []brig.Tenant{{Name: "victim", Quota: brig.DefaultQuota()}, {Name: "attacker", Quota: quota}} {
		if _, err := root.CreateTenant(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	var err error
	key := func(tenant string, role brig.Role) string {
		k, keyErr := root.CreateKey(ctx, brig.KeySpec{Name: role.String(), Tenant: tenant, Role: role})
		if keyErr != nil {
			err = errors.Join(err, keyErr)
			return ""
		}
		return k.Secret
	}
	order := &abuseRequest{URL: addr.URL, Viewer: key("attacker", brig.Viewer), Member: key("attacker", brig.Member)}
	victimKey := key("victim", brig.Member)
	if err != nil {
		return nil, nil, err
	}
	victim, err := client.New(client.Options{URL: addr.URL, Key: victimKey})
	return victim, order, err
}

// endAbuse ends the attacker, its sandboxes and the server.
func (l *lab) endAbuse(ctx context.Context, s *chaos.Server, a *attackerProcess) error {
	a.end()
	ctx = context.WithoutCancel(ctx)
	err := s.Stop()
	// Remove sandboxes that outlived the server, as a new server would.
	p, openErr := openParts(l.dir, slog.New(slog.DiscardHandler), image.Options{})
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	_, sweepErr := p.provider.Sweep(ctx, nil)
	return errors.Join(err, sweepErr)
}

// attackerProcess is the benchmark's handle for the attacker's process.
type attackerProcess struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	world *abuseWorld
	ended bool
}

// startAttacker starts an attacker, which waits for a request.
func startAttacker(ctx context.Context, name string) (_ *attackerProcess, err error) {
	a := &attackerProcess{cmd: exec.CommandContext(ctx, self, "abuse", "attacker", name)}
	a.cmd.Args[0] = "brig-bench" // argv[0] selects the program
	a.cmd.Stderr = os.Stderr
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.out = bufio.NewReader(out)
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	if err := a.read(&a.world); err != nil {
		a.end()
		return nil, err
	}
	return a, nil
}

func (a *attackerProcess) read(v any) error {
	line, err := a.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the attacker ended: %w", err)
	}
	return json.Unmarshal(line, v)
}

// begin sends the request to the attacker, and returns when the attack has started.
func (a *attackerProcess) begin(o *abuseRequest) error {
	if err := json.NewEncoder(a.in).Encode(o); err != nil {
		return err
	}
	var begun struct{ Error string }
	if err := a.read(&begun); err != nil {
		return err
	}
	if begun.Error != "" {
		return errors.New("the attacker cannot begin: " + begun.Error)
	}
	return nil
}

// readCounts waits for the end of the attack, and returns the attacker's counters.
func (a *attackerProcess) readCounts() (map[string]int64, error) {
	var counts map[string]int64
	return counts, a.read(&counts)
}

// end kills the process. Further calls have no effect.
func (a *attackerProcess) end() {
	if a.ended {
		return
	}
	a.ended = true
	a.in.Close()
	_ = a.cmd.Process.Kill() // the process may have ended
	_ = a.cmd.Wait()         // the error only reports that the process was killed
}
