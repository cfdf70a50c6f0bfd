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

func (c benchCommands) run() *cobra.Command {
	var rounds, hits int
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Time one-shot runs: bare, runsc, docker, and brig in every way, interleaved",
		Args:  cobra.NoArgs,
		RunE: c.wrapBenchmark(func(ctx context.Context, w *workbench) error {
			b := &runBench{rounds: rounds, hits: hits}
			defer b.close()
			if err := b.setUp(ctx, w); err != nil {
				return err
			}
			if err := b.measure(ctx, w); err != nil {
				return err
			}
			return w.printLoad(b.report())
		}),
	}
	cmd.Flags().IntVarP(&rounds, "rounds", "n", 15, "rounds of everyone")
	cmd.Flags().IntVar(&hits, "hits", 200, "further rounds of bare python3 and brig's pool")
	return cmd
}

// runBench compares several methods of running one program once. It has three rigs, so that no
// method uses pooled sandboxes that were created for another method.
type runBench struct {
	rounds, hits                                         int
	kinds                                                int // the number of distinct pool classes requested so far
	full, empty, none                                    *rig
	frozen                                               *v1.Sandbox
	bare, runsc, docker, hit, thawed, miss, cold, create *contender
	contenders                                           []*contender
}

// contender is one method of running the program.
type contender struct {
	name string
	run  func() (sample, error)
	peer *contender // the contender to compare with
	note string     // a remark in the report, for example why the contender is missing
	samples
}

// freezeAfter is the idle time after which the measured sandbox is frozen.
const freezeAfter = 20 * time.Millisecond

func (b *runBench) setUp(ctx context.Context, w *workbench) (err error) {
	if b.full, err = w.newRig(ctx, newPoolOptions(2)); err != nil {
		return err
	}
	if b.empty, err = w.newRig(ctx, engine.PoolOptions{Memory: brig.GiB, MaxPerClass: 1}); err != nil {
		return err
	}
	if b.none, err = w.newRig(ctx, engine.PoolOptions{}); err != nil {
		return err
	}
	bare, runsc, docker, err := b.full.openPeers()
	if err != nil {
		return err
	}
	b.bare, b.runsc, b.docker = b.peer(ctx, bare), b.peer(ctx, runsc), b.peer(ctx, docker)
	b.hit = &contender{name: "brig, pool hit", run: b.runHit}
	b.thawed = &contender{name: "brig, thawed", run: b.runThawed}
	b.miss = &contender{name: "brig, pool miss", run: b.runMiss, note: "CPU: two sandboxes, the missed one is made ahead now"}
	b.cold = &contender{name: "brig, no pool", run: b.runCold}
	b.create = &contender{name: "brig, create to first output", run: b.runCreate, note: "no pool; CPU with its end"}
	b.contenders = []*contender{b.bare, b.runsc, b.docker, b.hit, b.thawed, b.miss, b.cold, b.create}
	for _, who := range b.contenders[1:] {
		who.peer = b.bare
	}
	b.cold.peer, b.create.peer = b.runsc, b.runsc
	return b.freeze()
}

func (b *runBench) close() {
	for _, g := range []*rig{b.full, b.empty, b.none} {
		if g != nil {
			g.close()
		}
	}
}

// peer returns a contender that is measured under the same conditions as the others: while the
// server is idle, and including child processes that were not waited for. If the peer uses a
// daemon, its CPU time is unknown.
func (b *runBench) peer(ctx context.Context, p *peer) *contender {
	who := &contender{name: p.name, run: func() (sample, error) {
		s, err := b.none.measure(func() (time.Duration, error) {
			s, err := p.runOneShot(ctx)
			return s.wall, err
		})
		if p.usesDaemon {
			s.cpu = 0
		}
		return s, err
	}}
	if p.absenceReason != "" {
		who.run, who.note = nil, "not present ("+p.absenceReason+")"
	}
	return who
}

// freeze creates the sandbox that is frozen between measurements.
func (b *runBench) freeze() error {
	s, err := b.none.create(freezeAfter, nil)
	if err != nil {
		return err
	}
	b.frozen = s
	return b.none.runCode(s, "1", "1")
}

// measure runs all rounds. The first round is a warm-up.
func (b *runBench) measure(ctx context.Context, w *workbench) error {
	say, done := w.newProgress()
	defer done()
	for i := range b.rounds + 1 + b.hits {
		say(brig.Progress{Step: "rounds", Done: int64(i), Total: int64(b.rounds + 1 + b.hits)})
		turn := b.contenders
		if i > b.rounds {
			turn = []*contender{b.bare, b.hit}
		}
		for _, who := range turn {
			if who.run == nil {
				continue
			}
			s, err := who.run()
			if err != nil {
				return fmt.Errorf("%s: %w", who.name, err)
			}
			if i > 0 {
				who.samples = append(who.samples, s)
			}
		}
	}
	return ctx.Err()
}

// runFrom runs the program once on a rig. It returns an error if the sandbox's use of the pool is
// not want.
func runFrom(g *rig, want brig.PoolUse, limits *v1.Limits) (sample, error) {
	return g.measure(func() (time.Duration, error) {
		return clock(func() error {
			pool, err := g.runOneShot(limits)
			if err == nil && pool != string(want) {
				err = fmt.Errorf("the sandbox was a pool's %q, not %q", pool, want)
			}
			return err
		})
	})
}

func (b *runBench) runHit() (sample, error)  { return runFrom(b.full, brig.PoolHit, nil) }
func (b *runBench) runCold() (sample, error) { return runFrom(b.none, "", nil) }

// runMiss requests a new pool class each time, so that no pooled sandbox is
// ready.
func (b *runBench) runMiss() (sample, error) {
	b.kinds++
	return runFrom(b.empty, brig.PoolMiss, &v1.Limits{Memory: v1.Size(512+b.kinds) * brig.MiB})
}

func (b *runBench) runThawed() (sample, error) {
	time.Sleep(5 * freezeAfter)
	return b.none.measure(func() (time.Duration, error) {
		return clock(func() error { return b.none.runCode(b.frozen, "6*7", "42") })
	})
}

// runCreate measures the time from the creation of a sandbox to the first
// output of a command in it.
func (b *runBench) runCreate() (sample, error) {
	return b.none.measure(func() (wall time.Duration, err error) {
		start := time.Now()
		s, err := b.none.create(0, nil)
		if err != nil {
			return 0, err
		}
		in := v1.ExecRequest{Command: []string{hostPython, "-c", benchProgram}, Stream: true}
		err = b.none.sendStream("/v1/sandboxes/"+s.ID+"/exec", in, func(event string, _ []byte) error {
			if event == v1.EventStdout && wall == 0 {
				wall = time.Since(start)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		return wall, b.none.remove(s)
	})
}

func (b *runBench) report() *report {
	r := &report{Bench: "run", About: fmt.Sprintf("%d rounds of %q, interleaved, and %d more of bare python3 and pool hits", b.rounds, benchProgram, b.hits)}
	for _, who := range b.contenders {
		w := r.row(who.name)
		w.note = who.note
		if len(who.samples) == 0 {
			continue
		}
		w.addTimes(who.samples)
		if who.peer != nil {
			w.compareWith(who.peer.name, who.samples, who.peer.samples)
		}
	}
	bare := b.bare.median(wallOf)
	r.requireAtMost("pool hit to bare python3, median of pairs", b.hit.ratio(b.bare.samples, wallOf), 0.15)
	p99 := 0.0
	if len(b.hit.samples) >= enoughForP99 {
		p99 = float64(quantile(b.hit.values(wallOf), 0.99)) / float64(bare)
	}
	r.requireAtMost("pool hit's p99 to bare python3's median", p99, 1)
	r.requireAtMost("create to first output to runsc run, median of pairs", b.create.ratio(b.runsc.samples, wallOf), 1)
	r.requireAtMost("CPU of a fresh Python sandbox from the pool to runsc run", b.hit.ratio(b.runsc.samples, cpuOf), 0.6)
	r.requireAtMost("CPU of a fresh Python sandbox without a pool to runsc run", b.cold.ratio(b.runsc.samples, cpuOf), 0.6)
	return r
}
