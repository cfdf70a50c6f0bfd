//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/engine"
)

func (c benchCommands) density() *cobra.Command {
	b := &densityBench{}
	cmd := &cobra.Command{
		Use:   "density",
		Short: "Fill the machine with idle Python sandboxes: memory, idle CPU, time to wake",
		Args:  cobra.NoArgs,
		RunE:  c.wrapBenchmark(b.run),
	}
	cmd.Flags().IntVar(&b.maxSandboxes, "max", 500, "how many at most; fewer when memory is 90 % used")
	cmd.Flags().DurationVar(&b.idle, "idle", 10*time.Second, "how long the fleet's idle CPU is counted")
	cmd.Flags().DurationVar(&b.freeze, "freeze-after", 0, "freeze sandboxes that are idle for that long; 0 is never")
	return cmd
}

// densityBench measures many sandboxes with an idle interpreter.
type densityBench struct {
	maxSandboxes int
	idle, freeze time.Duration
	rig          *rig

	mu    sync.Mutex // guards the field below
	fleet []*v1.Sandbox
}

// sampled is the maximum number of sandboxes whose memory is measured.
const sampled = 10

func (b *densityBench) run(ctx context.Context, w *workbench) (err error) {
	if b.rig, err = w.newRig(ctx, engine.PoolOptions{}); err != nil {
		return err
	}
	defer b.rig.close()
	r := &report{Bench: "density", About: fmt.Sprintf("idle Python sandboxes, at most %d; memory is each one's, P50 and P99 are those of the next answer", b.maxSandboxes)}
	if err := b.measurePeers(ctx, r); err != nil {
		return err
	}
	free := readMemoryField("MemAvailable")
	if err := b.fill(ctx); err != nil {
		return err
	}
	time.Sleep(b.freeze + 2*time.Second) // wait until the interpreters have finished starting
	used := float64(free-readMemoryField("MemAvailable")) / float64(len(b.fleet)) / brig.MiB
	cpu, err := b.measureIdleCPU()
	if err != nil {
		return err
	}
	one, err := b.measureMemory()
	if err != nil {
		return err
	}
	wakes, answered := b.wake()
	b.report(r, used, cpu, one, wakes, answered)
	return errors.Join(w.printLoad(r), ctx.Err())
}

// fill creates sandboxes with an idle interpreter until the target number is reached or less than
// 10 % of the memory is available.
func (b *densityBench) fill(ctx context.Context) error {
	say, done := b.rig.newProgress()
	defer done()
	return forEach(make([]struct{}, b.maxSandboxes), func(struct{}) error {
		if ctx.Err() != nil || readMemoryField("MemAvailable") < readTotalMemory()/10 {
			return ctx.Err()
		}
		// IPython uses three times the memory of the plain interpreter, and is
		// not needed here.
		s, err := b.rig.create(b.freeze, map[string]string{"BRIG_NO_IPYTHON": "1"})
		if err == nil {
			err = b.rig.runCode(s, "1", "1")
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			return fmt.Errorf("sandbox %d: %w", len(b.fleet)+1, err)
		}
		b.fleet = append(b.fleet, s)
		say(brig.Progress{Step: "sandboxes", Done: int64(len(b.fleet)), Total: int64(b.maxSandboxes)})
		return nil
	})
}

// measureIdleCPU returns the CPU usage of the idle fleet and of this process, which is the server,
// in percent of one CPU.
func (b *densityBench) measureIdleCPU() (percent [2]float64, err error) {
	f, err := b.rig.newFleet()
	if err != nil {
		return percent, err
	}
	start, fleet, server := time.Now(), f.cpu(), usage(unix.RUSAGE_SELF)
	select {
	case <-time.After(b.idle):
	case <-b.rig.ctx.Done():
		return percent, b.rig.ctx.Err()
	}
	server, fleet = usage(unix.RUSAGE_SELF)-server, f.cpu()-fleet
	took := time.Since(start)
	return [2]float64{100 * float64(fleet) / float64(took), 100 * float64(server) / float64(took)}, nil
}

// measureMemory returns the mean memory usage of some sandboxes, spread evenly over the fleet.
func (b *densityBench) measureMemory() (memory, error) {
	f, err := b.rig.newFleet()
	if err != nil {
		return memory{}, err
	}
	n := min(sampled, len(b.fleet))
	var trees [][]int
	for i := range n {
		trees = append(trees, f.trees[b.fleet[i*len(b.fleet)/n].ID])
	}
	return mean(trees), nil
}

// wake sends a request to every interpreter, one after another.
func (b *densityBench) wake() (wakes samples, answered int) {
	say, done := b.rig.newProgress()
	defer done()
	for i, s := range b.fleet {
		say(brig.Progress{Step: "wake", Done: int64(i), Total: int64(len(b.fleet))})
		wall, err := clock(func() error { return b.rig.runCode(s, "6*7", "42") })
		if err != nil {
			fmt.Fprintln(b.rig.stderr, sanitizeText(err.Error()))
			continue
		}
		answered++
		wakes = append(wakes, sample{wall: wall})
	}
	return wakes, answered
}

// measurePeers measures a few idle interpreters that run without Brig.
func (b *densityBench) measurePeers(ctx context.Context, r *report) error {
	bare, runsc, docker, err := b.rig.openPeers()
	if err != nil {
		return err
	}
	for _, p := range []*peer{bare, runsc} {
		if err := b.measurePeer(ctx, r, p); err != nil {
			return err
		}
	}
	if docker.absenceReason != "" {
		r.addAbsent(docker.name, docker.absenceReason)
		return nil
	}
	return b.measurePeer(ctx, r, docker)
}

func (b *densityBench) measurePeer(ctx context.Context, r *report, p *peer) error {
	var waiting []*repl
	defer func() {
		for _, in := range waiting {
			in.close()
		}
	}()
	free := readMemoryField("MemAvailable")
	for range min(sampled, b.maxSandboxes) {
		in, err := p.startREPL(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		waiting = append(waiting, in)
	}
	time.Sleep(time.Second)
	used := float64(free-readMemoryField("MemAvailable")) / float64(len(waiting)) / brig.MiB
	w := r.row(p.name+", waiting").set("available_mib", used)
	if !p.usesDaemon {
		all := children()
		var trees [][]int
		for _, in := range waiting {
			trees = append(trees, descendants(all, in.cmd.Process.Pid))
		}
		w.setMemory(mean(trees))
	}
	var wakes samples
	for _, in := range waiting {
		wall, err := in.measureEval("6*7", "42")
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		wakes = append(wakes, sample{wall: wall})
	}
	w.addTimes(wakes)
	return nil
}

func (w *row) setMemory(m memory) {
	w.set("private_mib", m.private).set("shared_mib", m.shared).set("rss_mib", m.rss)
}

func (b *densityBench) report(r *report, used float64, cpu [2]float64, one memory, wakes samples, answered int) {
	w := r.row("brig, waiting").addTimes(wakes)
	w.set("count", float64(len(b.fleet))).set("succeeded", float64(answered)).set("available_mib", used).set("cpu_percent", cpu[0])
	w.setMemory(one)
	w.note = "IDLE CPU: all of them, of one processor"
	s := r.row("brig, their server").set("cpu_percent", cpu[1])
	s.setMemory(memoryOf([]int{os.Getpid()}))
	r.requireAtLeast("Python sandboxes alive at once", float64(len(b.fleet)), 500)
	r.requireAtLeast("of which answered", float64(answered), float64(max(len(b.fleet), 500)))
	r.requireAtMost("idle CPU of all of them, in % of one processor", max(cpu[0], 0.001), 5)
}
