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

func (c *cli) benchContext() *cobra.Command {
	var runs int
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Time code in a CodeContext, beside interpreters that are driven by a pipe",
		Args:  cobra.NoArgs,
		RunE:  c.bench(func(ctx context.Context, w *workbench) error { return w.context(ctx, runs) }),
	}
	cmd.Flags().IntVarP(&runs, "runs", "n", 1000, "runs of each")
	return cmd
}

// asked is an interpreter that is asked for the value of 1+1.
type asked struct {
	name string
	ask  func() (time.Duration, error)
	cpu  func() time.Duration // what its processes have used so far; nil if not known
	ours bool                 // this process works for it, too
	own  time.Duration        // and that much
	samples
}

// context has one interpreter of each kind answer, in turns.
func (w *workbench) context(ctx context.Context, runs int) error {
	g, err := w.newRig(ctx, engine.PoolOptions{})
	if err != nil {
		return err
	}
	defer g.close()
	r := &report{Bench: "context", About: fmt.Sprintf("%d times 1+1 in an interpreter that keeps its variables, in turns of %d", runs, inARow)}
	// IPython is used where the image has it, and takes its time.
	ours, err := g.askContext("brig, a context", nil)
	if err != nil {
		return err
	}
	plain, err := g.askContext("brig, a context without IPython", map[string]string{"BRIG_NO_IPYTHON": "1"})
	if err != nil {
		return err
	}
	everyone := []*asked{ours, plain}
	bare, runsc, docker, err := g.peers()
	if err != nil {
		return err
	}
	for _, p := range []*peer{bare, runsc, docker} {
		if p.absent != "" {
			continue
		}
		in, err := p.repl(ctx)
		if err != nil {
			return err
		}
		defer in.close()
		everyone = append(everyone, askPipe(p, in))
	}
	if err := w.takeTurns(everyone, runs); err != nil {
		return err
	}
	base := everyone[2]
	for _, who := range everyone {
		row := r.row(who.name).times(who.samples)
		if who != base {
			row.against(base.name, who.samples, base.samples)
		}
	}
	if docker.absent != "" {
		r.absent(docker.name, docker.absent)
	}
	r.atMost("p50 of code in a context through REST, in ms", millis(ours.median(wallOf)), 1)
	r.atMost("p50 of the same without IPython, in ms", millis(plain.median(wallOf)), 1)
	return w.show(r)
}

func (g *rig) askContext(name string, env map[string]string) (*asked, error) {
	s, err := g.create(0, env)
	if err != nil {
		return nil, err
	}
	who := &asked{name: name}
	who.ask = func() (time.Duration, error) {
		return clock(func() error { return g.code(s, "1+1", "2") })
	}
	if _, err := who.ask(); err != nil { // the context is made now
		return nil, err
	}
	f, err := g.fleet()
	if err != nil {
		return nil, err
	}
	who.cpu, who.ours = f.cpu, true
	return who, nil
}

func askPipe(p *peer, in *repl) *asked {
	who := &asked{name: p.name + ", by a pipe", ask: func() (time.Duration, error) { return in.eval("1+1", "2") }}
	if !p.daemon {
		who.cpu = func() time.Duration { return treeTime(in.cmd.Process.Pid) }
	}
	return who
}

// takeTurns asks everyone in turns.
func (w *workbench) takeTurns(everyone []*asked, runs int) error {
	say, done := w.progress()
	defer done()
	for range 2 { // interpreters warm up, too
		if err := turn(everyone, inARow); err != nil {
			return err
		}
	}
	before := make([]time.Duration, len(everyone))
	for i, who := range everyone {
		who.samples, who.own = nil, 0
		if who.cpu != nil {
			before[i] = who.cpu()
		}
	}
	for i := 0; i < runs; i += inARow {
		say(brig.Progress{Step: "runs", Done: int64(i), Total: int64(runs)})
		if err := turn(everyone, min(inARow, runs-i)); err != nil {
			return err
		}
	}
	for i, who := range everyone {
		if who.cpu != nil {
			who.share(who.cpu() - before[i] + who.own)
		}
	}
	return nil
}

// inARow is how many times one is asked before it is another's turn: whoever
// uses a context has nobody else empty the caches after every line.
const inARow = 10

func turn(everyone []*asked, n int) error {
	for _, who := range everyone {
		before := usage(unix.RUSAGE_SELF)
		for range n {
			wall, err := who.ask()
			if err != nil {
				return fmt.Errorf("%s: %w", who.name, err)
			}
			who.samples = append(who.samples, sample{wall: wall})
		}
		if who.ours {
			who.own += usage(unix.RUSAGE_SELF) - before
		}
	}
	return nil
}

// share gives each sample an even part of the processor time: that of one is
// too little to be seen.
func (a *asked) share(all time.Duration) {
	for i := range a.samples {
		a.samples[i].cpu = all / time.Duration(len(a.samples))
	}
}
