//go:build bench

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

func (c benchCommands) context() *cobra.Command {
	var runs int
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Time code in a CodeContext, beside interpreters that are driven by a pipe",
		Args:  cobra.NoArgs,
		RunE:  c.wrapBenchmark(func(ctx context.Context, w *workbench) error { return w.measureContexts(ctx, runs) }),
	}
	cmd.Flags().IntVarP(&runs, "runs", "n", 1000, "runs of each")
	return cmd
}

// evaluator is an interpreter whose evaluations of 1+1 are measured.
type evaluator struct {
	name      string
	evaluate  func() (time.Duration, error)
	cpu       func() time.Duration // the CPU time of its processes so far; nil if unknown
	inProcess bool                 // requests to it also use CPU time of this process
	ownTime   time.Duration        // the CPU time that this process used for it
	samples
}

// measureContexts measures one interpreter of each kind, in rotation.
func (w *workbench) measureContexts(ctx context.Context, runs int) error {
	g, err := w.newRig(ctx, engine.PoolOptions{})
	if err != nil {
		return err
	}
	defer g.close()
	r := &report{Bench: "context", About: fmt.Sprintf("%d times 1+1 in an interpreter that keeps its variables, in turns of %d", runs, samplesPerTurn)}
	// The context uses IPython, which is slower, if the image has it.
	ours, err := g.askContext("brig, a context", nil)
	if err != nil {
		return err
	}
	plain, err := g.askContext("brig, a context without IPython", map[string]string{"BRIG_NO_IPYTHON": "1"})
	if err != nil {
		return err
	}
	contenders := []*evaluator{ours, plain}
	bare, runsc, docker, err := g.openPeers()
	if err != nil {
		return err
	}
	for _, p := range []*peer{bare, runsc, docker} {
		if p.absenceReason != "" {
			continue
		}
		in, err := p.startREPL(ctx)
		if err != nil {
			return err
		}
		defer in.close()
		contenders = append(contenders, newPipeEvaluator(p, in))
	}
	if err := w.takeTurns(contenders, runs); err != nil {
		return err
	}
	base := contenders[2]
	for _, who := range contenders {
		row := r.row(who.name).addTimes(who.samples)
		if who != base {
			row.compareWith(base.name, who.samples, base.samples)
		}
	}
	if docker.absenceReason != "" {
		r.addAbsent(docker.name, docker.absenceReason)
	}
	r.requireAtMost("p50 of code in a context through REST, in ms", millis(ours.median(wallOf)), 1)
	r.requireAtMost("p50 of the same without IPython, in ms", millis(plain.median(wallOf)), 1)
	return w.printLoad(r)
}

func (g *rig) askContext(name string, env map[string]string) (*evaluator, error) {
	s, err := g.create(0, env)
	if err != nil {
		return nil, err
	}
	who := &evaluator{name: name}
	who.evaluate = func() (time.Duration, error) {
		return clock(func() error { return g.runCode(s, "1+1", "2") })
	}
	if _, err := who.evaluate(); err != nil { // the first evaluation creates the context
		return nil, err
	}
	f, err := g.newFleet()
	if err != nil {
		return nil, err
	}
	who.cpu, who.inProcess = f.cpu, true
	return who, nil
}

func newPipeEvaluator(p *peer, in *repl) *evaluator {
	who := &evaluator{name: p.name + ", by a pipe", evaluate: func() (time.Duration, error) { return in.measureEval("1+1", "2") }}
	if !p.usesDaemon {
		who.cpu = func() time.Duration { return treeTime(in.cmd.Process.Pid) }
	}
	return who
}

// takeTurns measures all interpreters in rotation, after two turns each as a warm-up.
func (w *workbench) takeTurns(contenders []*evaluator, runs int) error {
	say, done := w.newProgress()
	defer done()
	for range 2 { // warm up
		if err := runInTurns(contenders, samplesPerTurn); err != nil {
			return err
		}
	}
	before := make([]time.Duration, len(contenders))
	for i, who := range contenders {
		who.samples, who.ownTime = nil, 0
		if who.cpu != nil {
			before[i] = who.cpu()
		}
	}
	for i := 0; i < runs; i += samplesPerTurn {
		say(brig.Progress{Step: "runs", Done: int64(i), Total: int64(runs)})
		if err := runInTurns(contenders, min(samplesPerTurn, runs-i)); err != nil {
			return err
		}
	}
	for i, who := range contenders {
		if who.cpu != nil {
			who.divideCPUTime(who.cpu() - before[i] + who.ownTime)
		}
	}
	return nil
}

// samplesPerTurn is the number of consecutive requests to one interpreter before the benchmark
// switches to the next. In real use, no other interpreter evicts the CPU caches after every line.
const samplesPerTurn = 10

func runInTurns(contenders []*evaluator, n int) error {
	for _, who := range contenders {
		before := usage(unix.RUSAGE_SELF)
		for range n {
			wall, err := who.evaluate()
			if err != nil {
				return fmt.Errorf("%s: %w", who.name, err)
			}
			who.samples = append(who.samples, sample{wall: wall})
		}
		if who.inProcess {
			who.ownTime += usage(unix.RUSAGE_SELF) - before
		}
	}
	return nil
}

// divideCPUTime divides the total CPU time evenly among the samples, because one sample is too
// short to measure.
func (a *evaluator) divideCPUTime(all time.Duration) {
	for i := range a.samples {
		a.samples[i].cpu = all / time.Duration(len(a.samples))
	}
}
