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
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/engine/quota"
)

const (
	// maxProcesses is the maximum number of running and ended processes that the engine tracks per
	// sandbox. Each process costs a thread and memory for its output.
	maxProcesses = 128
	// maxTotalProcesses is the maximum number of processes in all sandboxes. The Go runtime aborts
	// a program that has ten thousand threads.
	maxTotalProcesses = 4000
	// processRetention is how long the engine keeps a process after its end.
	processRetention = 10 * time.Minute
	// detachDelay is the time after which the engine prepares a process to
	// outlive the server. Most processes end sooner.
	detachDelay = 200 * time.Millisecond
)

// processes holds the processes of one sandbox, by their PIDs inside the
// sandbox.
type processes struct {
	mu       sync.Mutex // guards the fields below
	byPID    map[int]*process
	starting int
}

// process is a background process that is running or has ended.
type process struct {
	brig.Process
	spec         brig.ProcessSpec
	started      time.Time
	outputBuffer *output.Buffer

	timedOut atomic.Bool
	input    sync.Mutex // one write at a time

	detachMu    sync.Mutex         // guards the fields below, and serializes calls of Keep
	detached    bool               // whether the supervisor also holds the process's descriptors
	reservation *quota.Reservation // in the tenant's quota, while the process runs; nil if it was taken over

	// unwatch stops watching a process that keeps running. unwatched is closed
	// afterwards.
	unwatch   func()
	unwatched chan struct{}
}

// processState is stored with a process that outlives the server.
type processState struct {
	Spec    brig.ProcessSpec
	Started time.Time
}

// processesOf returns the processes of a sandbox. The set is created if
// necessary.
func (pg *programs) processesOf(id brig.ID) (ps *processes) {
	pg.sandboxes.update(id, func(s *sandbox) {
		if s.processes == nil {
			s.processes = &processes{byPID: map[int]*process{}}
		}
		ps = s.processes
	})
	return ps
}

// startProcess starts a process in an instance and watches it. The process is charged to a, or to
// the account of the sandbox's tenant if a is nil.
func (pg *programs) startProcess(ctx context.Context, a *account, rec *brig.Record, in brig.Instance, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	ps := pg.processesOf(rec.ID)
	if err := ps.reserve(); err != nil {
		return nil, err
	}
	defer ps.unreserve()
	defer pg.watchedProcesses.Add(-1) // watchProcess counts it from then on
	if pg.watchedProcesses.Add(1) > maxTotalProcesses {
		return nil, newTooManyProcessesError()
	}
	run, err := pg.vault.withSecrets(ctx, rec, spec.Command) // not stored in p.spec, which callers see
	if err != nil {
		return nil, err
	}
	if a == nil {
		if a, err = pg.getAccount(ctx, rec.Tenant); err != nil {
			return nil, err
		}
	}
	reservation, err := a.ReserveExec(rec.Spec.Labels)
	if err != nil {
		return nil, err
	}
	reservation.Start()
	proc, err := in.Start(ctx, newExecID(), run, brig.Streams{Terminal: spec.Terminal})
	if err != nil {
		reservation.Cancel()
		return nil, err
	}
	if spec.NoInput {
		_ = proc.Stdin().Close() // it fails only if the input has ended
	}
	pg.limitMessages(proc, rec.Tenant) // even without a channel, its agent may send messages
	p := &process{Process: proc, spec: spec, started: pg.Now().UTC(), outputBuffer: pg.relays.NewBuffer(rec.Tenant).HoldForFollower(), reservation: reservation}
	if !ps.add(p) {
		reservation.Release()
		// Only a compromised agent reuses the PID of a running process.
		err := proc.Kill(ctx)
		if err != nil {
			pg.lifecycle.endProgramLater(rec, in, proc)
		}
		return nil, errors.Join(fmt.Errorf("the agent says that process %d is another", p.PID()), err, proc.Close())
	}
	pg.watchProcess(rec, in, ps, p)
	return p.info(), nil
}

func newTooManyProcessesError() error {
	return brig.Errorf(brig.Unavailable, "the server looks after %d processes already", maxTotalProcesses).WithHint("try again later")
}

// watchProcess watches a process until the process ends or the engine closes.
func (pg *programs) watchProcess(rec *brig.Record, in brig.Instance, ps *processes, p *process) {
	done := make(chan struct{})
	ctx, unwatch := context.WithCancel(pg.ctx)
	p.unwatch, p.unwatched = unwatch, done
	p.reservation.SetStopFunc(func(error) { pg.lifecycle.endProcess(rec, in, p) })
	pg.watchedProcesses.Add(1)
	pg.background.Go(func() {
		defer pg.watchedProcesses.Add(-1)
		defer close(done)
		defer unwatch()
		defer func() { p.takeReservation().Release() }()
		defer context.AfterFunc(ctx, func() {
			// The process continues; the next server or the resume of the sandbox takes it over.
			pg.detachProcess(in, p)
			reason := "the sandbox was paused"
			if pg.ctx.Err() != nil {
				reason = "the server stops"
			}
			p.outputBuffer.Finish(nil, brig.Errorf(brig.Unavailable, "%s", reason).WithHint("attach again"))
			_ = p.Close()
		})()
		if d := p.spec.Command.Timeout; d > 0 {
			defer time.AfterFunc(time.Until(p.started.Add(d)), func() { pg.killExpired(rec, in, p) }).Stop()
		}
		pg.background.Go(func() {
			if _, err := p.Wait(ctx); err == nil { // if the instance ended, no more output follows
				p.outputBuffer.MarkEnded()
			}
		})
		p.record(output.NewLogTee(in.Log, rec.Spec.Limits.Output).Stream())
		res, err := p.Wait(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			// The instance is ending. Wait for its end, so that a notified caller finds the
			// instance ended.
			pg.awaitEnd(pg.ctx, in, endReportTimeout)
			p.outputBuffer.Finish(nil, brig.Errorf(brig.FailedPrecondition, "the sandbox ended while the process ran").Because(err))
			pg.reportProcessEnd(rec, p, nil, brig.Errorf(brig.FailedPrecondition, ""))
		default:
			end := *res
			end.Started, end.Duration = p.started, pg.Now().Sub(p.started)
			if end.TimedOut = p.timedOut.Load() && end.Signal == "SIGKILL"; end.TimedOut {
				end.ExitCode = 124
			}
			p.outputBuffer.Finish(&end, nil)
			pg.reportProcessEnd(rec, p, &end, nil)
		}
		_ = p.Close()
		time.AfterFunc(processRetention, func() { ps.remove(p) })
	})
	pg.background.Go(func() {
		select {
		case <-done:
		case <-time.After(detachDelay):
			pg.detachProcess(in, p)
		}
		<-done
		pg.undoDetach(in, p)
	})
}

// takeReservation takes over the reservation of a process. It returns nil if it was
// taken before.
func (p *process) takeReservation() *quota.Reservation {
	p.detachMu.Lock()
	defer p.detachMu.Unlock()
	r := p.reservation
	p.reservation = nil
	return r
}

// detachProcess makes a process outlive this server. Later calls have no
// effect.
func (pg *programs) detachProcess(in brig.Instance, p *process) {
	p.detachMu.Lock()
	defer p.detachMu.Unlock()
	if !p.detached {
		p.detached = true
		pg.updateSupervisor(in, p)
	}
}

// updateSupervisor stores the current state of a process in the instance's
// supervisor. The caller holds p.detachMu.
func (pg *programs) updateSupervisor(in brig.Instance, p *process) {
	ctx, cancel := detachedContext(pg.ctx)
	defer cancel()
	b, err := json.Marshal(reattachState{Process: &processState{p.spec, p.started}})
	if err == nil {
		err = in.Keep(ctx, p.Process, b)
	}
	if err != nil && !hasEnded(in) {
		pg.Log.ErrorContext(ctx, "failed to detach a process, so it ends with the server", "err", err)
	}
}

// closeStdin closes a process's standard input, including the supervisor's
// copy.
func (pg *programs) closeStdin(in brig.Instance, p *process) {
	p.detachMu.Lock()
	defer p.detachMu.Unlock()
	_ = p.Stdin().Close() // closing twice is harmless
	if p.detached {
		pg.updateSupervisor(in, p)
	}
}

// undoDetach undoes detachProcess for a process that has ended. The next server takes over a
// process that still runs.
func (pg *programs) undoDetach(in brig.Instance, p *process) {
	p.detachMu.Lock()
	defer p.detachMu.Unlock()
	if _, end, _ := p.outputBuffer.State(); !p.detached || end == nil || hasEnded(in) {
		return
	}
	ctx, cancel := detachedContext(pg.ctx)
	defer cancel()
	_ = in.Keep(ctx, p.Process, nil) // if it fails, recovery finds that the process has ended
}

// killExpired kills a process whose timeout has expired.
func (pg *programs) killExpired(rec *brig.Record, in brig.Instance, p *process) {
	p.timedOut.Store(true)
	pg.lifecycle.endProgram(rec, in, p)
}

// record copies a process's output to its output buffer until the output ends.
// It copies the beginning to the sandbox's log.
func (p *process) record(log io.Writer) {
	for {
		from, b, err := p.Receive()
		if err != nil {
			return
		}
		_, _ = log.Write(b) // Write never fails
		p.outputBuffer.Write(from, b)
	}
}

func (p *process) info() *brig.ProcessInfo {
	written, end, _ := p.outputBuffer.State()
	return &brig.ProcessInfo{PID: p.PID(), Spec: p.spec, Started: p.started, Written: written, Result: end}
}

// reserve reserves a place for one more process, until unreserve is called.
func (ps *processes) reserve() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	full := func() bool { return len(ps.byPID)+ps.starting >= maxProcesses }
	if full() {
		maps.DeleteFunc(ps.byPID, func(_ int, p *process) bool {
			_, _, finished := p.outputBuffer.State()
			if finished {
				p.outputBuffer.ReleaseCharge()
			}
			return finished
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

// add registers a process and reports whether it succeeded. It fails if the PID
// is invalid or belongs to another running process.
func (ps *processes) add(p *process) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.PID() < 1 || p.PID() > math.MaxInt32 {
		return false
	}
	if other := ps.byPID[p.PID()]; other != nil {
		if _, _, finished := other.outputBuffer.State(); !finished {
			return false
		}
		other.outputBuffer.ReleaseCharge()
	}
	ps.byPID[p.PID()] = p
	return true
}

// removeAll releases the output of all processes after their sandbox has been removed.
func (ps *processes) removeAll() {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byPID {
		p.outputBuffer.ReleaseCharge()
	}
}

func (ps *processes) remove(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.byPID[p.PID()] == p {
		delete(ps.byPID, p.PID())
		p.outputBuffer.ReleaseCharge()
	}
}

// find returns a process. If running is set, the process must not have ended.
func (ps *processes) find(pid int, running bool) (*process, error) {
	ps.mu.Lock()
	p := ps.byPID[pid]
	ps.mu.Unlock()
	if p != nil && running {
		if _, _, finished := p.outputBuffer.State(); finished {
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
	out := make([]*brig.ProcessInfo, 0, len(ps.byPID))
	for _, p := range ps.byPID {
		// Skip a lost process, because its result is unknown.
		if _, end, finished := p.outputBuffer.State(); end != nil || !finished {
			out = append(out, p.info())
		}
	}
	slices.SortFunc(out, func(a, b *brig.ProcessInfo) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID))
	})
	return out
}

// running returns the processes that have not ended.
func (ps *processes) running() (out []*process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byPID {
		if _, _, finished := p.outputBuffer.State(); !finished {
			out = append(out, p)
		}
	}
	return out
}

// write writes to a process's input until ctx is done.
func (p *process) write(ctx context.Context, b []byte) error {
	if p.spec.NoInput {
		return brig.Errorf(brig.FailedPrecondition, "the process has no input").WithHint("start it with one")
	}
	p.input.Lock()
	defer p.input.Unlock()
	in := p.Stdin()
	if d, ok := in.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Time{}) // an input without deadlines blocks
		defer context.AfterFunc(ctx, func() { _ = d.SetWriteDeadline(time.Unix(1, 0)) })()
	}
	_, err := in.Write(b)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return brig.Errorf(brig.FailedPrecondition, "the process has closed its input").Because(err)
}

// recoverProcess takes over a process of an earlier server or of a restored instance. reserved is
// nil for a process of an earlier server.
func (pg *programs) recoverProcess(rec *brig.Record, in brig.Instance, k brig.KeptProcess, n *processState, reserved *quota.Reservation) {
	pg.limitMessages(k.Process, rec.Tenant)
	p := &process{Process: k.Process, spec: n.Spec, started: n.Started, outputBuffer: pg.relays.NewBuffer(rec.Tenant), detached: true, reservation: reserved}
	if a, err := pg.getAccount(pg.ctx, rec.Tenant); err == nil && reserved == nil {
		p.reservation = a.ResumeExec(rec.Spec.Labels)
	}
	reserved.Start()
	ps := pg.processesOf(rec.ID)
	if !ps.add(p) {
		_ = p.Close() // the agent controls this PID, so it may be invalid
		p.reservation.Release()
		return
	}
	pg.watchProcess(rec, in, ps, p)
}
