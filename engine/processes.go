package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

const (
	// maxProcesses is how many processes of one sandbox are remembered,
	// those that run included; each costs a thread and its output.
	maxProcesses = 128
	// maxAllProcesses is how many run in all sandboxes at once: Go ends a
	// program with ten thousand threads.
	maxAllProcesses = 4000
	// keepProcess is for how long one that has ended is remembered.
	keepProcess = 10 * time.Minute
	// settleTime is how long a process runs before it is kept over a server's
	// death: most end sooner.
	settleTime = 200 * time.Millisecond
)

// processes are those of one sandbox, by their ids inside.
type processes struct {
	mu       sync.Mutex // guards the fields below
	by       map[int]*process
	starting int
}

// process is a program that runs, or has, without anybody waiting for it.
type process struct {
	brig.Process
	spec    brig.ProcessSpec
	started time.Time
	tape    *tape
	turn    *seat // in the tenant's quota, while it runs

	timedOut atomic.Bool
	input    sync.Mutex // one write at a time

	keeping sync.Mutex // guards the field below, and what is kept
	kept    bool       // somebody else has its descriptors, too
}

// processNote is what is kept with a process over a server's death.
type processNote struct {
	Spec    brig.ProcessSpec
	Started time.Time
}

// processesOf returns the processes of a sandbox, an empty set at first.
func (e *Engine) processesOf(id brig.ID) *processes {
	e.mu.Lock()
	defer e.mu.Unlock()
	ps := e.processes[id]
	if ps == nil {
		ps = &processes{by: map[int]*process{}}
		e.processes[id] = ps
	}
	return ps
}

// startProcess starts a process in a machine and looks after it.
func (e *Engine) startProcess(ctx context.Context, rec *brig.Record, in brig.Instance, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	ps := e.processesOf(rec.ID)
	if err := ps.reserve(); err != nil {
		return nil, err
	}
	defer ps.unreserve()
	defer e.looked.Add(-1) // from then on look counts it
	if e.looked.Add(1) > maxAllProcesses {
		return nil, brig.Errorf(brig.Unavailable, "the server looks after %d processes already", maxAllProcesses).WithHint("try again later")
	}
	run, err := e.withSecrets(ctx, rec, spec.Command) // which nobody is told
	if err != nil {
		return nil, err
	}
	a, err := e.account(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	turn, err := a.begin(rec.Spec.Labels)
	if err != nil {
		return nil, err
	}
	proc, err := in.Start(ctx, newExecID(), run, brig.Streams{Terminal: spec.Terminal})
	if err != nil {
		turn.undo()
		return nil, err
	}
	if spec.NoInput {
		_ = proc.Stdin().Close() // an input that cannot be closed has ended
	}
	p := &process{Process: proc, spec: spec, started: e.Now().UTC(), tape: newTape().hold(), turn: turn}
	if !ps.add(p) {
		turn.end()
		// Only an agent that was tampered with says so.
		err := proc.Kill(ctx)
		return nil, errors.Join(fmt.Errorf("the agent says that process %d is another", p.PID()), err, proc.Close())
	}
	e.look(rec, in, ps, p)
	return p.info(), nil
}

// look looks after a process until it ends, or the engine does.
func (e *Engine) look(rec *brig.Record, in brig.Instance, ps *processes, p *process) {
	done := make(chan struct{})
	e.looked.Add(1)
	e.work.Go(func() {
		defer e.looked.Add(-1)
		defer close(done)
		defer p.turn.end()
		p.turn.endsBy(func(error) { e.endProcess(rec, p) })
		defer context.AfterFunc(e.ctx, func() {
			// The process goes on; the next server finds it.
			e.keepProcess(in, p)
			p.tape.finish(nil, brig.Errorf(brig.Unavailable, "the server stops").WithHint("attach again"))
			_ = p.Close()
		})()
		if d := p.spec.Command.Timeout; d > 0 {
			defer time.AfterFunc(time.Until(p.started.Add(d)), func() { e.expire(rec, p) }).Stop()
		}
		p.record(newLogTee(in, rec.Spec.Limits.Output).stream())
		res, err := p.Wait(e.ctx)
		switch {
		case e.ctx.Err() != nil:
			return
		case err != nil:
			// Its machine dies. Who is told so finds it dead.
			e.awaitEnd(e.ctx, in, stopTime)
			p.tape.finish(nil, brig.Errorf(brig.FailedPrecondition, "the sandbox ended while the process ran").Because(err))
			e.processEnded(rec, p, nil, brig.Errorf(brig.FailedPrecondition, ""))
		default:
			end := *res
			end.Started, end.Duration = p.started, e.Now().Sub(p.started)
			if end.TimedOut = p.timedOut.Load() && end.Signal == "SIGKILL"; end.TimedOut {
				end.ExitCode = 124
			}
			p.tape.finish(&end, nil)
			e.processEnded(rec, p, &end, nil)
		}
		_ = p.Close()
		time.AfterFunc(keepProcess, func() { ps.forget(p) })
	})
	e.work.Go(func() {
		select {
		case <-done:
		case <-time.After(settleTime):
			e.keepProcess(in, p)
		}
		<-done
		e.letGo(in, p)
	})
}

// keepProcess makes a process outlive this server, once.
func (e *Engine) keepProcess(in brig.Instance, p *process) {
	p.keeping.Lock()
	defer p.keeping.Unlock()
	if !p.kept {
		p.kept = true
		e.tellKeeper(in, p)
	}
}

// tellKeeper has the machine keep a process as it is now. The caller holds
// p.keeping.
func (e *Engine) tellKeeper(in brig.Instance, p *process) {
	ctx, cancel := cleanup(e.ctx)
	defer cancel()
	b, err := json.Marshal(note{Process: &processNote{p.spec, p.started}})
	if err == nil {
		err = in.Keep(ctx, p.Process, b)
	}
	if err != nil && !gone(in) {
		e.Log.ErrorContext(ctx, "keep a process over the server's death", "err", err)
	}
}

// closeInput ends a process's standard input, everywhere.
func (e *Engine) closeInput(in brig.Instance, p *process) {
	p.keeping.Lock()
	defer p.keeping.Unlock()
	_ = p.Stdin().Close() // twice is as good as once
	if p.kept {
		e.tellKeeper(in, p)
	}
}

// letGo undoes keepProcess for one that has ended; one that has not is the next
// server's.
func (e *Engine) letGo(in brig.Instance, p *process) {
	p.keeping.Lock()
	defer p.keeping.Unlock()
	if _, end, _ := p.tape.state(); !p.kept || end == nil || gone(in) {
		return
	}
	ctx, cancel := cleanup(e.ctx)
	defer cancel()
	_ = in.Keep(ctx, p.Process, nil) // a note too much is found to have ended
}

// expire ends a process whose time is over.
func (e *Engine) expire(rec *brig.Record, p *process) {
	p.timedOut.Store(true)
	ctx, cancel := cleanup(e.ctx)
	defer cancel()
	if err := p.Kill(ctx); err != nil {
		e.Log.ErrorContext(ctx, "kill a process whose time is over", "sandbox", rec.ID, "err", err)
	}
}

// record carries a process's output to its tape until there is no more, and the
// beginning of it to the sandbox's log.
func (p *process) record(log io.Writer) {
	for {
		from, b, err := p.Receive()
		if err != nil {
			return
		}
		_, _ = log.Write(b) // it never fails
		p.tape.write(from, b)
	}
}

func (p *process) info() *brig.ProcessInfo {
	written, end, _ := p.tape.state()
	return &brig.ProcessInfo{PID: p.PID(), Spec: p.spec, Started: p.started, Written: written, Result: end}
}

// reserve makes room for one more process, until unreserve.
func (ps *processes) reserve() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	full := func() bool { return len(ps.by)+ps.starting >= maxProcesses }
	if full() {
		maps.DeleteFunc(ps.by, func(_ int, p *process) bool {
			_, _, over := p.tape.state()
			return over
		})
	}
	if full() {
		return brig.Errorf(brig.FailedPrecondition, "the sandbox has %d processes already", maxProcesses).WithHint("end some first")
	}
	ps.starting++
	return nil
}

func (ps *processes) unreserve() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.starting--
}

// add reports whether the process is known now: its id must be one, and not
// that of another that runs.
func (ps *processes) add(p *process) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.PID() < 1 || p.PID() > math.MaxInt32 {
		return false
	}
	if other := ps.by[p.PID()]; other != nil {
		if _, _, over := other.tape.state(); !over {
			return false
		}
	}
	ps.by[p.PID()] = p
	return true
}

func (ps *processes) forget(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.by[p.PID()] == p {
		delete(ps.by, p.PID())
	}
}

// find returns a process, one that runs if it must.
func (ps *processes) find(pid int, running bool) (*process, error) {
	ps.mu.Lock()
	p := ps.by[pid]
	ps.mu.Unlock()
	if p != nil && running {
		if _, _, over := p.tape.state(); over {
			p = nil
		}
	}
	if p == nil {
		return nil, brig.Errorf(brig.NotFound, "process with pid %d not found", pid).WithHint("list the sandbox's processes")
	}
	return p, nil
}

func (ps *processes) list() []*brig.ProcessInfo {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]*brig.ProcessInfo, 0, len(ps.by))
	for _, p := range ps.by {
		// Of one that was lost nobody knows how it ended.
		if _, end, over := p.tape.state(); end != nil || !over {
			out = append(out, p.info())
		}
	}
	slices.SortFunc(out, func(a, b *brig.ProcessInfo) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID))
	})
	return out
}

// write gives a process input, for as long as ctx lasts.
func (p *process) write(ctx context.Context, b []byte) error {
	if p.spec.NoInput {
		return brig.Errorf(brig.FailedPrecondition, "the process has no input").WithHint("start it with one")
	}
	p.input.Lock()
	defer p.input.Unlock()
	in := p.Stdin()
	if d, ok := in.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Time{}) // not all can; those wait
		defer context.AfterFunc(ctx, func() { _ = d.SetWriteDeadline(time.Unix(1, 0)) })()
	}
	_, err := in.Write(b)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return brig.Errorf(brig.FailedPrecondition, "the process's input is closed").Because(err)
}

// recoverProcess takes up a process that an earlier server kept.
func (e *Engine) recoverProcess(rec *brig.Record, in brig.Instance, k brig.Kept, n *processNote) {
	p := &process{Process: k.Process, spec: n.Spec, started: n.Started, tape: newTape(), kept: true}
	if a, err := e.account(e.ctx, rec.Tenant); err == nil {
		p.turn = a.goOn(rec.Spec.Labels)
	}
	ps := e.processesOf(rec.ID)
	if !ps.add(p) {
		_ = p.Close() // what was kept is whatever the agent made of it
		p.turn.end()
		return
	}
	e.look(rec, in, ps, p)
}
