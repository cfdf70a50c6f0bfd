//go:build bench

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

//go:embed bench_e2b.mjs
var e2bScript []byte

func (c benchCommands) e2b() *cobra.Command {
	var rounds int
	var modules string
	cmd := &cobra.Command{
		Use:   "e2b",
		Short: "Time what E2B's own JavaScript SDK sees",
		Long: `Time what E2B's own JavaScript SDK sees: from create to the first command's
result, commands, files and output. The SDK is taken from a folder in which
somebody has installed it (npm install e2b); node runs it.`,
		Args: cobra.NoArgs,
		RunE: c.wrapBenchmark(func(ctx context.Context, w *workbench) error { return w.measureE2B(ctx, rounds, modules) }),
	}
	cmd.Flags().IntVarP(&rounds, "rounds", "n", 20, "rounds of each")
	cmd.Flags().StringVar(&modules, "modules", ".", "`folder` with node_modules")
	return cmd
}

// e2bFigure is one measurement, a line of the script's output.
type e2bFigure struct {
	Name     string
	MS       []float64
	MBPerSec []float64 `json:"mb_per_s"`
}

func (w *workbench) measureE2B(ctx context.Context, rounds int, modules string) error {
	modules, err := filepath.Abs(modules)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(modules, "node_modules", "e2b")); err != nil {
		return brig.InvalidField("modules", "there is no E2B SDK in that folder").
			WithHint("npm install e2b in a folder, and give that with --modules").Because(err)
	}
	g, err := w.newRig(ctx, newPoolOptions(4))
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.waitUntilQuiet(); err != nil {
		return err
	}
	figures, err := g.askE2B(ctx, rounds, modules)
	if err != nil {
		return err
	}
	r := &report{Bench: "e2b", About: fmt.Sprintf("%d rounds by E2B's JavaScript SDK; a pool of 4", rounds)}
	by := map[string]*e2bFigure{}
	for _, f := range figures {
		by[f.Name] = f
		row := r.row(f.Name)
		if len(f.MBPerSec) > 0 {
			row.set("count", float64(len(f.MBPerSec))).set("mb_per_s", quantile(f.MBPerSec, 0.5))
			continue
		}
		row.set("count", float64(len(f.MS))).set("p50_ms", quantile(f.MS, 0.5))
		if len(f.MS) >= enoughForP99 {
			row.set("p99_ms", quantile(f.MS, 0.99))
		}
	}
	if f := by["create to first command"]; f != nil {
		r.requireAtMost("p50 from create to the first command's result, in ms", quantile(f.MS, 0.5), 25)
	}
	return w.printLoad(r)
}

// askE2B runs the script against the rig's server and decodes its measurements.
func (g *rig) askE2B(ctx context.Context, rounds int, modules string) ([]*e2bFigure, error) {
	key, err := os.ReadFile(filepath.Join(g.dir, e2bKeyFile))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", "--input-type=module", "-")
	cmd.Stdin = bytes.NewReader(e2bScript)
	cmd.Env = append(os.Environ(), "MODULES="+modules, "ROUNDS="+strconv.Itoa(rounds),
		"E2B_API_KEY="+strings.TrimSpace(string(key)), "E2B_API_URL="+g.url, "E2B_SANDBOX_URL="+g.url)
	cmd.Stderr = g.stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "node could not be run, or what it ran failed: %v", err).
			WithHint("see what it printed; Node 20 or newer is needed")
	}
	var figures []*e2bFigure
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := &e2bFigure{}
		if err := json.Unmarshal(lines.Bytes(), f); err != nil {
			return nil, fmt.Errorf("decode what node printed: %w", err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}
