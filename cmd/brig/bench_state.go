//go:build bench

package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/engine"
)

func (c benchCommands) state() *cobra.Command {
	b := &stateBench{}
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Measure pauses, forks, and what being pausable costs",
		Long: `Measure pauses, forks, and what being pausable costs.

A thread in the sandbox sleeps for half a millisecond again and again, and reports the
longest time that a sleep took: for that long, the programs of the sandbox stood still. The
control is the same without a save.

CPU is that of the server, its client, the shims and the sandboxes. SANDBOX CPU is that of
the sandboxes alone.`,
		Args: cobra.NoArgs,
		RunE: c.wrapBenchmark(b.run),
	}
	cmd.Flags().IntVarP(&b.rounds, "rounds", "n", 15, "rounds of pauses and of forks")
	cmd.Flags().IntVar(&b.calls, "calls", 300, "cells and commands of each kind")
	cmd.Flags().IntVar(&b.paused, "paused", 1000, "paused sandboxes at once; 0 skips them")
	cmd.Flags().IntVar(&b.output, "output", 50, "output of a command, in `MB`; 0 skips it")
	cmd.Flags().IntSliceVar(&b.dirty, "dirty", []int{64, 256}, "memory that sandboxes have written, in `MB`")
	return cmd
}

// stateBench measures the cost of saving sandboxes.
type stateBench struct {
	rounds, calls, paused, output int
	dirty                         []int
	rig                           *rig
	report                        *report
}

func (b *stateBench) run(ctx context.Context, w *workbench) (err error) {
	if b.rounds < 1 || b.calls < 1 {
		return brig.InvalidField("--rounds", "%d rounds and %d calls cannot be measured", b.rounds, b.calls).WithHint("give numbers from 1")
	}
	if b.rig, err = w.newRig(ctx, engine.PoolOptions{}); err != nil {
		return err
	}
	defer b.rig.close()
	b.report = &report{Bench: "state", About: fmt.Sprintf("%d rounds of pauses and forks of idle Python sandboxes; %d cells and commands of each kind, in turns", b.rounds, b.calls)}
	say, done := w.newProgress()
	defer done()
	for _, step := range []struct {
		name string
		do   func() error
	}{{"pauses", b.measurePauses}, {"forks", b.measureForks}, {"cells", b.measureCells}, {"commands", b.measureCommands}, {"output", b.measureOutputs}, {"many", b.measureMany}} {
		say(brig.Progress{Step: step.name})
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if err := b.rig.removeAll(b.rig.ctx); err != nil {
			return err
		}
		b.rig.live.Store(0) // removeAll also subtracts the paused copies, which were never counted
	}
	return w.printLoad(b.report)
}

// idleProgram is a Python program. It defines a thread that measures how long the sandbox stands
// still, and it writes some memory.
const idleProgram = `import os, threading, time
def beat():
    global longest
    last = time.monotonic()
    while beating:
        time.sleep(.0005)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
def begin():
    global beating, longest, thread
    beating, longest = True, 0
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
def end():
    global beating, thread
    beating = False
    thread.join()
    return longest * 1000
dirty = os.urandom(%d)
len(dirty)`

// createIdle creates a sandbox with an idle Python interpreter that has written size
// bytes of memory.
func (b *stateBench) createIdle(pausable bool, size int) (*v1.Sandbox, error) {
	s, err := b.rig.createFrom(map[string]any{
		"ttl_ms": rigTTL.Milliseconds(), "pausable": pausable, "env": map[string]string{"BRIG_NO_IPYTHON": "1"},
		"limits": map[string]any{"memory": 512*brig.MiB + size},
	})
	if err == nil {
		err = b.rig.runCode(s, fmt.Sprintf(idleProgram, size), strconv.Itoa(size))
	}
	return s, err
}

// settle is how long the measuring thread runs before and after an operation.
const settle = 20 * time.Millisecond

// measureStall returns the longest time that a thread in the sandbox stood still during f.
func (b *stateBench) measureStall(s *v1.Sandbox, f func() error) (time.Duration, error) {
	if err := b.rig.runCode(s, "begin()", ""); err != nil {
		return 0, err
	}
	time.Sleep(settle)
	if err := f(); err != nil {
		return 0, err
	}
	time.Sleep(settle)
	text, err := b.rig.runForValue(s, "end()")
	if err != nil {
		return 0, err
	}
	ms, err := strconv.ParseFloat(text, 64)
	return time.Duration(ms * float64(time.Millisecond)), err
}

// costs are measurements that include the CPU time of the sandboxes alone.
type costs struct {
	samples
	insideTimes []time.Duration
}

func (b *stateBench) measure(to *costs, f func() (time.Duration, error)) error {
	before, _ := groupTime(b.rig.group)
	s, err := b.rig.measure(f)
	after, _ := groupTime(b.rig.group)
	to.samples, to.insideTimes = append(to.samples, s), append(to.insideTimes, after-before)
	return err
}

func (b *stateBench) row(name string, c costs) *row {
	return b.report.row(name).addTimes(c.samples).set("sandbox_cpu_ms", millis(quantile(c.insideTimes, 0.5)))
}

// pauseCase holds the measurements of a sandbox that has written a certain amount of memory.
type pauseCase struct {
	name               string
	size               int
	box                *v1.Sandbox
	quiet, still, exec samples
	pause, resume      costs
	saved              int64 // the disk space of the last save
}

// measurePauses measures how long a save suspends a sandbox, how long a pause takes, and how long the
// first command of a paused sandbox takes.
func (b *stateBench) measurePauses() error {
	list := []*pauseCase{{name: "idle"}}
	for _, mb := range b.dirty {
		list = append(list, &pauseCase{name: fmt.Sprintf("%d MB written", mb), size: mb * 1e6})
	}
	for _, c := range list {
		var err error
		if c.box, err = b.createIdle(false, c.size); err != nil {
			return err
		}
	}
	for round := range b.rounds + 1 {
		for _, c := range list {
			if err := b.pauseOnce(c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round == 0 { // the first round parks the interpreter, and is a warm-up
				c.quiet, c.still, c.exec, c.pause, c.resume = nil, nil, nil, costs{}, costs{}
			}
		}
	}
	for _, c := range list {
		b.report.row(c.name + ": longest sleep without a save").addTimes(c.quiet)
		b.report.row(c.name + ": stands still for a save").addTimes(c.still)
		b.row(c.name+": pause", c.pause).set("disk_mib", float64(c.saved)/brig.MiB)
		b.row(c.name+": resume and first command", c.resume)
		b.report.row(c.name + ": a command").addTimes(c.exec)
	}
	idle, last := list[0], list[len(list)-1]
	b.report.requireAtMost("an idle Python sandbox stands still for a save, in ms", millis(idle.still.median(wallOf)), 45)
	if last.size > 0 {
		b.report.requireAtMost("each dirty MB adds to that, in ms", millis(last.still.median(wallOf)-idle.still.median(wallOf))/float64(last.size/1e6), 0.5)
	}
	b.report.requireAtMost("sandbox CPU of a pause, in ms", millis(quantile(idle.pause.insideTimes, 0.5)), 55)
	b.report.requireAtMost("resume until the first command's result, p50 in ms", millis(idle.resume.median(wallOf)), 100)
	return nil
}

// pauseOnce measures one pause and one resume.
func (b *stateBench) pauseOnce(c *pauseCase) error {
	still, err := b.measureStall(c.box, func() error {
		snapshot, err := b.fork(c.box, v1.ForkRequest{Paused: true})
		if err == nil {
			err = b.rig.call(http.MethodDelete, "/v1/sandboxes/"+snapshot[0].ID, nil, nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	quiet, err := b.measureStall(c.box, func() error { time.Sleep(100 * time.Millisecond); return nil })
	if err != nil {
		return err
	}
	exec, err := clock(func() error { return b.exec(c.box) })
	if err != nil {
		return err
	}
	c.still, c.quiet, c.exec = append(c.still, sample{wall: still}), append(c.quiet, sample{wall: quiet}), append(c.exec, sample{wall: exec})
	err = b.measure(&c.pause, func() (time.Duration, error) {
		var out v1.Sandbox
		wall, err := clock(func() error { return b.rig.call(http.MethodPost, "/v1/sandboxes/"+c.box.ID+"/pause", nil, &out) })
		if err == nil {
			c.saved = out.Pause.Bytes
		}
		return wall, err
	})
	if err != nil {
		return err
	}
	return b.measure(&c.resume, func() (time.Duration, error) {
		return clock(func() error { return b.exec(c.box) })
	})
}

// exec runs the shortest command in a sandbox.
func (b *stateBench) exec(s *v1.Sandbox) error {
	var out v1.Result
	err := b.rig.call(http.MethodPost, "/v1/sandboxes/"+s.ID+"/exec", v1.ExecRequest{Command: []string{"/bin/echo", "42"}}, &out)
	if err == nil && out.Stdout != benchOutput {
		err = fmt.Errorf("a command printed %q, %q", out.Stdout, out.Stderr)
	}
	return err
}
