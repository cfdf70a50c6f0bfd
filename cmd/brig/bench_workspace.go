//go:build bench

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/engine"
)

func (c benchCommands) workspace() *cobra.Command {
	var rounds, files int
	large := "1GiB"
	cmd := &cobra.Command{
		Use:   "workspace",
		Short: "Time workspaces: many files and one large one, into a version and out of it",
		Args:  cobra.NoArgs,
		RunE: c.wrapBenchmark(func(ctx context.Context, w *workbench) error {
			size, err := v1.ParseSize(large)
			if err != nil || size < 1 {
				return brig.InvalidField("--large", "%q is not a size", large)
			}
			if files < 1 || files > brig.MaxWorkspaceFiles/2 || rounds < 1 {
				return brig.InvalidField("--files", "%d files in %d rounds cannot be measured", files, rounds)
			}
			return w.measureWorkspaces(ctx, rounds, files, size)
		}),
	}
	cmd.Flags().IntVarP(&rounds, "rounds", "n", 3, "rounds of each")
	cmd.Flags().IntVar(&files, "files", 10_000, "how many files of 1 KB")
	cmd.Flags().StringVar(&large, "large", large, "`size` of the large file")
	return cmd
}

// workspaceLoad is one kind of workspace content, with its measurements.
type workspaceLoad struct {
	name, shell string
	files       int
	size        int64
	commitTimes []time.Duration // for content that the store does not contain yet
	repeatTimes []time.Duration // for content that the store already contains
	createTimes []time.Duration // for a sandbox that starts with the content
}

func (w *workbench) measureWorkspaces(ctx context.Context, rounds, files int, large int64) error {
	g, err := w.newRig(ctx, engine.PoolOptions{})
	if err != nil {
		return err
	}
	defer g.close()
	hauls := []*workspaceLoad{
		{name: "nothing", shell: "true"},
		{name: fmt.Sprintf("%d files of 1 KB", files), files: files, size: int64(files) * 1000, shell: fmt.Sprintf(`python3 -c "
import os
for i in range(%d):
    if i %% 100 == 0: os.mkdir(f'd{i // 100}')
    with open(f'd{i // 100}/f{i}', 'wb') as f: f.write(os.urandom(1000))"`, files)},
		{name: "one file of " + brig.FormatBytes(large), files: 1, size: large, shell: fmt.Sprintf("head -c %d /dev/urandom > large", large)},
	}
	limits := brig.Limits{Memory: 2 * brig.GiB, CPUs: 2, Disk: 2*large + brig.GiB}
	for round := range rounds {
		for i, h := range hauls {
			if err := g.measureWorkspaceLoad(h, fmt.Sprintf("bench-%d-%d", i, round), limits); err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
		}
	}
	r := &report{Bench: "workspace", About: fmt.Sprintf("%d rounds of random bytes; to create is to make a sandbox from scratch that begins with them", rounds)}
	for _, h := range hauls {
		for _, did := range []struct {
			what      string
			durations []time.Duration
		}{{"commit", h.commitTimes}, {"commit again", h.repeatTimes}, {"create", h.createTimes}} {
			took := quantile(did.durations, 0.5)
			row := r.row(h.name+": "+did.what).set("count", float64(len(did.durations))).set("wall_ms", millis(took))
			if h.files > 0 {
				row.set("per_s", float64(h.files)/took.Seconds()).set("mb_per_s", float64(h.size)/1e6/took.Seconds())
			}
		}
	}
	return w.printLoad(r)
}

// measureWorkspaceLoad commits a workspace twice from a sandbox, and creates another sandbox that
// starts with the content.
func (g *rig) measureWorkspaceLoad(h *workspaceLoad, name string, limits brig.Limits) error {
	if _, err := g.engine.CreateWorkspace(g.ctx, name); err != nil {
		return err
	}
	begin := func(as string) error {
		_, err := g.engine.Create(g.ctx, brig.Spec{Name: as, TTL: time.Hour, Limits: limits, Workspace: brig.WorkspaceUse{Name: name}})
		return err
	}
	if err := begin(name); err != nil {
		return err
	}
	res, err := g.engine.Exec(g.ctx, name, brig.Command{Shell: h.shell, Timeout: 10 * time.Minute}, brig.IO{})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("make it: %s", res.Stderr.Head)
	}
	commit := func() error {
		c, err := g.engine.CommitWorkspace(g.ctx, name)
		if err == nil && h.files > 0 && (c.Version.Files != h.files || c.Version.Size != h.size) {
			err = fmt.Errorf("the version has %d files and %d bytes", c.Version.Files, c.Version.Size)
		}
		return err
	}
	for _, step := range []struct {
		to *[]time.Duration
		f  func() error
	}{{&h.commitTimes, commit}, {&h.repeatTimes, commit}, {&h.createTimes, func() error { return begin(name + "-next") }}} {
		began := time.Now()
		if err := step.f(); err != nil {
			return err
		}
		*step.to = append(*step.to, time.Since(began))
	}
	if err := g.removeAll(g.ctx); err != nil {
		return err
	}
	return g.engine.RemoveWorkspace(g.ctx, name)
}
