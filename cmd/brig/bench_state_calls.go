//go:build bench

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// fork forks a sandbox and returns the copies.
func (b *stateBench) fork(s *v1.Sandbox, in v1.ForkRequest) ([]*v1.Sandbox, error) {
	var out v1.Copies
	if err := b.rig.call(http.MethodPost, "/v1/sandboxes/"+s.ID+"/fork", in, &out); err != nil {
		return nil, err
	}
	var copies []*v1.Sandbox
	for i := range out.Sandboxes {
		copies = append(copies, &out.Sandboxes[i])
	}
	return copies, nil
}

// forkCount is the number of copies of a measured fork.
const forkCount = 8

// measureForks measures forks of a sandbox in two ways: with the thread that measures how long the
// original stands still, and without it, because the copies would inherit the thread.
func (b *stateBench) measureForks() error {
	box, err := b.createIdle(false, 0)
	if err != nil {
		return err
	}
	var still, called samples
	var answered costs
	for round := range b.rounds + 1 {
		var copies []*v1.Sandbox
		create := func() (err error) {
			copies, err = b.fork(box, v1.ForkRequest{Count: forkCount})
			b.rig.live.Add(int64(len(copies)))
			return err
		}
		gap, err := b.measureStall(box, create)
		if err == nil {
			err = forEach(copies, b.rig.remove)
		}
		if err != nil {
			return err
		}
		var call time.Duration
		err = b.measure(&answered, func() (time.Duration, error) {
			start := time.Now()
			if err := create(); err != nil {
				return 0, err
			}
			call = time.Since(start)
			err := runConcurrently(copies, func(s *v1.Sandbox) error { return b.rig.runCode(s, "6*7", "42") })
			return time.Since(start), err
		})
		if err == nil {
			err = forEach(copies, b.rig.remove)
		}
		if err != nil {
			return err
		}
		if still, called = append(still, sample{wall: gap}), append(called, sample{wall: call}); round == 0 {
			still, called, answered = nil, nil, costs{}
		}
	}
	name := fmt.Sprintf("fork to %d: ", forkCount)
	b.report.row(name + "the original stands still").addTimes(still)
	b.report.row(name + "the call").addTimes(called)
	inside := millis(quantile(answered.insideTimes, 0.5)) / forkCount
	row := b.row(name+"all have answered", answered).set("sandbox_cpu_ms", inside).set("cpu_ms", millis(answered.median(cpuOf))/forkCount)
	row.note = "CPU: each copy's"
	b.report.requireAtMost("the original of a fork stands still, in ms", millis(still.median(wallOf)), 50)
	b.report.requireAtMost("a fork until all copies have answered, in ms", millis(answered.median(wallOf)), 450)
	b.report.requireAtMost("sandbox CPU of each copy, in ms", inside, 90)
	return nil
}

// runConcurrently calls f for all items concurrently and returns all errors.
func runConcurrently[T any](list []T, f func(T) error) error {
	errs := make([]error, len(list))
	var work sync.WaitGroup
	for i, item := range list {
		work.Go(func() { errs[i] = f(item) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// createKinds returns a plain sandbox, a sandbox that was paused once, and a
// pausable sandbox.
func (b *stateBench) createKinds() (plain, parked, pausable *v1.Sandbox, err error) {
	if plain, err = b.createIdle(false, 0); err != nil {
		return nil, nil, nil, err
	}
	if parked, err = b.createIdle(false, 0); err != nil {
		return nil, nil, nil, err
	}
	if pausable, err = b.createIdle(true, 0); err != nil {
		return nil, nil, nil, err
	}
	err = b.rig.call(http.MethodPost, "/v1/sandboxes/"+parked.ID+"/pause", nil, nil)
	return plain, parked, pausable, err
}

// measureCells compares code in a sandbox that was never saved with code in sandboxes that can be
// saved.
func (b *stateBench) measureCells() error {
	plain, parked, pausable, err := b.createKinds()
	if err != nil {
		return err
	}
	cell := func(name string, s *v1.Sandbox) *evaluator {
		return &evaluator{name: name, evaluate: func() (time.Duration, error) {
			return clock(func() error { return b.rig.runCode(s, "1+1", "2") })
		}}
	}
	base, after, able := cell("cell", plain), cell("cell after a pause", parked), cell("cell, pausable", pausable)
	if err := b.rig.takeTurns([]*evaluator{base, after, able}, b.calls); err != nil {
		return err
	}
	b.addPairs(base, after, able)
	b.report.requireAtMost("cell after a pause to a cell, median of pairs", after.ratio(base.samples, wallOf), 1.03)
	b.report.requireAtMost("cell in a pausable sandbox to a cell, median of pairs", able.ratio(base.samples, wallOf), 1.03)
	return nil
}

// addPairs adds rows that compare contenders with a base.
func (b *stateBench) addPairs(base *evaluator, others ...*evaluator) {
	b.report.row(base.name).addTimes(base.samples)
	for _, who := range others {
		b.report.row(who.name).addTimes(who.samples).compareWith(base.name, who.samples, base.samples)
	}
}

// measureCommands compares commands with streams of the host to commands in a pausable sandbox,
// with streams of the agent.
func (b *stateBench) measureCommands() error {
	plain, _, pausable, err := b.createKinds()
	if err != nil {
		return err
	}
	command := func(name string, s *v1.Sandbox) *evaluator {
		return &evaluator{name: name, evaluate: func() (time.Duration, error) { return clock(func() error { return b.exec(s) }) }}
	}
	donated, carried := command("command", plain), command("command, pausable", pausable)
	if err := b.rig.takeTurns([]*evaluator{donated, carried}, b.calls); err != nil {
		return err
	}
	b.addPairs(donated, carried)
	b.report.requireAtMost("command in a pausable sandbox to a command, median of pairs", carried.ratio(donated.samples, wallOf), 1.1)
	return nil
}

// measureOutputs makes the same comparison for commands with a large output.
func (b *stateBench) measureOutputs() error {
	if b.output == 0 {
		return nil
	}
	plain, _, pausable, err := b.createKinds()
	if err != nil {
		return err
	}
	writer := fmt.Sprintf("import os\nb = b'0123456789abcde\\n' * 6250\nfor _ in range(%d): os.write(1, b)", b.output*10)
	write := func(name string, s *v1.Sandbox) *evaluator {
		return &evaluator{name: name, evaluate: func() (time.Duration, error) {
			return clock(func() error { return b.runAndCheckOutput(s, writer, b.output*1e6) })
		}}
	}
	donated, carried := write(fmt.Sprintf("%d MB of output", b.output), plain), write(fmt.Sprintf("%d MB of output, pausable", b.output), pausable)
	for range min(b.rounds, 5) + 1 {
		if err := runInTurns([]*evaluator{donated, carried}, 1); err != nil {
			return err
		}
	}
	donated.samples, carried.samples = donated.samples[1:], carried.samples[1:]
	b.addPairs(donated, carried)
	b.report.requireAtMost("output in a pausable sandbox to output, median of pairs", carried.ratio(donated.samples, wallOf), 1.05)
	return nil
}

// runAndCheckOutput runs a Python program in a sandbox, and checks the size of its output.
func (b *stateBench) runAndCheckOutput(s *v1.Sandbox, program string, size int) error {
	n := 0
	in := v1.ExecRequest{Command: []string{hostPython, "-c", program}, Stream: true}
	err := b.rig.sendStream("/v1/sandboxes/"+s.ID+"/exec", in, func(event string, line []byte) error {
		if event != v1.EventStdout {
			return nil
		}
		var part v1.Chunk
		err := json.Unmarshal(line, &part)
		n += len(part.Data) + len(part.DataB64)
		return err
	})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came, not %d", n, size)
	}
	return err
}

// measureMany measures the cost of a large number of paused sandboxes.
func (b *stateBench) measureMany() error {
	if b.paused == 0 {
		return nil
	}
	box, err := b.createIdle(false, 0)
	if err != nil {
		return err
	}
	list := func(limit int) func() error {
		return func() error {
			return b.rig.call(http.MethodGet, fmt.Sprintf("/v1/sandboxes?state=paused&limit=%d", limit), nil, nil)
		}
	}
	if err := list(1000)(); err != nil { // warm up
		return err
	}
	heap := heapSize()
	for range b.paused {
		if _, err := b.fork(box, v1.ForkRequest{Paused: true}); err != nil {
			return err
		}
	}
	each := float64(heapSize()-heap) / float64(b.paused) / brig.KiB
	var all, page samples
	for range 20 {
		for limit, to := range map[int]*samples{1000: &all, 100: &page} {
			took, err := clock(list(limit))
			if err != nil {
				return err
			}
			*to = append(*to, sample{wall: took})
		}
	}
	disk, err := diskUsage(filepath.Join(b.rig.dir, "saves"))
	if err != nil {
		return err
	}
	mib := float64(disk) / brig.MiB / float64(b.paused)
	b.report.row("paused sandboxes: each").set("count", float64(b.paused)).set("disk_mib", mib).set("heap_kib", each)
	b.report.row("paused sandboxes: a list of up to 1,000").addTimes(all)
	b.report.row("paused sandboxes: a list of up to 100").addTimes(page)
	b.report.requireAtMost("disk of each paused sandbox, in MiB", mib, 1.5)
	b.report.requireAtMost("server memory of each paused sandbox, in KiB", max(each, 0.001), 4)
	b.report.requireAtMost("list of up to 1,000 paused sandboxes, p50 in ms", millis(all.median(wallOf)), 50)
	return nil
}

// heapSize returns the memory in use by this process, which runs the server and its client.
func heapSize() int64 {
	runtime.GC()
	runtime.GC() // the first run keeps objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// diskUsage returns the allocated size of the files below a directory.
func diskUsage(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("measure %s: %w", path, err)
		}
		n += st.Blocks * 512
		return nil
	})
	return n, err
}
