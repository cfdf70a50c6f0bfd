package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

func (c *cli) benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure brig against its peers on this machine"}
	var n int
	var dockerImage string
	run := &cobra.Command{
		Use:   "run",
		Short: "Time one-shots: bare, runsc, docker and brig, interleaved",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.benchRun(cmd.Context(), n, dockerImage)
		},
	}
	run.Flags().IntVarP(&n, "count", "n", 15, "rounds")
	run.Flags().StringVar(&dockerImage, "docker-image", "python:3.11-slim", "local docker image with python3")
	cmd.AddCommand(run)
	return cmd
}

// contender is one way to run the same program.
type contender struct {
	name string
	run  func() error
	wall []time.Duration
	cpu  []time.Duration
	note string
}

// benchProgram is what everyone runs.
const benchProgram = "print(6*7)"

// benchRun times everyone in turns, so that what else the machine does falls
// on all alike, and prints medians and ratios.
func (c *cli) benchRun(ctx context.Context, n int, dockerImage string) error {
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	svc, ctx, done, err := c.local(ctx, dir, true)
	if err != nil {
		return err
	}
	defer done()
	lab, err := os.MkdirTemp("", "brig-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(lab)
	runsc, err := c.runsc(ctx, svc, dir, lab)
	if err != nil {
		return err
	}
	everyone := []*contender{
		{name: "bare python3 -c", run: func() error { return quiet(ctx, "/usr/bin/python3", "-c", benchProgram) }},
		{name: "runsc run", run: runsc},
		{name: "brig run, cold", run: func() error {
			o, err := svc.Run(ctx, brig.Program{Language: brig.Python, Code: benchProgram}, brig.IO{})
			if err == nil && string(o.Stdout.Head) != "42\n" {
				err = fmt.Errorf("brig printed %q", o.Stdout.Head)
			}
			return err
		}},
		{name: "docker run", run: func() error {
			return quiet(ctx, "docker", "run", "--rm", "--network=none", dockerImage, "python3", "-c", benchProgram)
		}, note: "CPU is the daemon's, not counted"},
	}
	if err := exec.CommandContext(ctx, "docker", "image", "inspect", dockerImage).Run(); err != nil {
		everyone[3].run, everyone[3].note = nil, "not present (no engine, or no image "+dockerImage+")"
	}
	for round := range n + 1 {
		for _, who := range everyone {
			if who.run == nil {
				continue
			}
			before, start := childTime(), time.Now()
			if err := who.run(); err != nil {
				return fmt.Errorf("%s: %w", who.name, err)
			}
			wall := time.Since(start)
			time.Sleep(20 * time.Millisecond) // its last processes are waited for
			if round > 0 {                    // the first one warms up
				who.wall = append(who.wall, wall)
				who.cpu = append(who.cpu, childTime()-before)
			}
		}
	}
	return c.benchReport(n, everyone)
}

// runsc returns a run of the same program by gVisor's own command line, with
// the same files.
func (c *cli) runsc(ctx context.Context, svc brig.Service, dir, lab string) (func() error, error) {
	img, err := svc.GetImage(ctx, brig.HostImage)
	if err != nil {
		return nil, err
	}
	p, err := open(dir, nil)
	if err != nil {
		return nil, err
	}
	root, err := p.images.Root(img.Digest)
	if err != nil {
		return nil, err
	}
	mounts := `{"destination":"/proc","type":"proc"}`
	for _, b := range root.Binds {
		mounts += fmt.Sprintf(`,{"destination":%q,"type":"bind","source":%q,"options":["rbind","ro"]}`, b.Target, b.Source)
	}
	spec := fmt.Sprintf(`{"ociVersion":"1.0.0","process":{"user":{"uid":1000,"gid":1000},"args":["/usr/bin/python3","-c",%q],
"env":["PATH=/usr/bin:/bin"],"cwd":"/","noNewPrivileges":true},"root":{"path":%q},"hostname":"runsc","mounts":[%s],
"linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"mount"},{"type":"ipc"},{"type":"uts"}]}}`, benchProgram, root.Dir, mounts)
	if err := os.WriteFile(filepath.Join(lab, "config.json"), []byte(spec), 0o600); err != nil {
		return nil, err
	}
	i := 0
	return func() error {
		i++
		cmd := exec.CommandContext(ctx, self, "--root="+filepath.Join(lab, "state"), "--network=none", "--ignore-cgroups",
			"--overlay2=root:memory", "--host-settings=ignore", "--gofer-network-namespace=host",
			fmt.Sprintf("--rootless=%t", os.Geteuid() != 0), "run", "--bundle="+lab, fmt.Sprintf("bench-%d-%d", os.Getpid(), i))
		cmd.Args[0] = "runsc"
		out, err := cmd.CombinedOutput()
		if err == nil && string(out) != "42\n" || err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}, nil
}

func quiet(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err == nil && string(out) != "42\n" {
		err = fmt.Errorf("printed %q", out)
	}
	return err
}

// childTime is the processor time of all processes that were started from
// here and have ended.
func childTime() time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2]
}

func (c *cli) benchReport(n int, everyone []*contender) error {
	type row struct {
		Name      string  `json:"name"`
		WallMS    float64 `json:"wall_ms,omitempty"`
		WallRatio float64 `json:"wall_ratio,omitempty"`
		CPUMS     float64 `json:"cpu_ms,omitempty"`
		CPURatio  float64 `json:"cpu_ratio,omitempty"`
		Note      string  `json:"note,omitempty"`
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	base := everyone[0]
	var rows []row
	var cells [][]string
	for _, w := range everyone {
		r := row{Name: w.name, Note: w.note}
		line := []string{w.name, "-", "-", "-", "-", w.note}
		if len(w.wall) > 0 {
			r.WallMS, r.CPUMS = ms(median(w.wall)), ms(median(w.cpu))
			r.WallRatio = r.WallMS / ms(median(base.wall))
			r.CPURatio = r.CPUMS / max(ms(median(base.cpu)), 0.001)
			line = []string{w.name, fmt.Sprintf("%.1f ms", r.WallMS), fmt.Sprintf("%.1f×", r.WallRatio), fmt.Sprintf("%.1f ms", r.CPUMS), fmt.Sprintf("%.1f×", r.CPURatio), w.note}
		}
		rows, cells = append(rows, r), append(cells, line)
	}
	if c.asJSON {
		return c.printJSON(map[string]any{"rounds": n, "program": benchProgram, "contenders": rows})
	}
	fmt.Fprintf(c.stdout, "%d rounds of %q, interleaved; medians\n", n, benchProgram)
	return c.table("CONTENDER\tWALL\tRATIO\tCPU\tRATIO\t", cells)
}
