package agent

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// execution is the process tree of one call, and the record of how its first process ended.
type execution struct {
	call    wire.Exec
	tag     uint32
	plain   bool // the environment contains the tag
	started time.Time
	done    chan struct{} // closed when the end of the process is recorded

	mu             sync.Mutex // guards the fields below
	ended          time.Time
	leader         int           // id of the first process and of its process group
	terminal       *os.File      // the agent's side of the terminal, if there is one
	parked         chan *carrier // receives the carrier of a parked interpreter; nil if it cannot be parked
	exit           *wire.Exit
	reaped         *wire.Exit // how the process ended; its output may still be in transfer
	reapedAt       time.Time
	released       bool // a release waits for the end of the call, so the output ends immediately
	timedOut       bool
	stdout, stderr *wire.HeadTail
}

// exec starts a process, streams its output to w and ends the call with its
// exit.
func (a *Agent) exec(call wire.Exec, r *wire.Reader, w *writer) {
	x, err := a.register(call)
	if err != nil {
		w.fail(err)
		return
	}
	p, err := a.spawn(x)
	if err != nil {
		a.forget(x)
		w.fail(err)
		return
	}
	w.writeJSON(wire.TypeStarted, wire.Started{PID: x.pid()})

	if call.TimeoutMS > 0 {
		clock := time.AfterFunc(time.Duration(call.TimeoutMS)*time.Millisecond, func() {
			x.mu.Lock()
			x.timedOut = true
			x.mu.Unlock()
			a.killer.kill(x)
		})
		defer clock.Stop()
	}
	a.calls.closeWith(w.c, closerFunc(func() { x.release(p) }))
	go x.handleControl(r, p.stdin)

	var pumps sync.WaitGroup
	pumps.Go(func() { pump(p.stdout, wire.TypeStdout, x, x.stdout, w) })
	pumps.Go(func() { pump(p.stderr, wire.TypeStderr, x, x.stderr, w) })
	if p.result != nil {
		pumps.Go(func() { pump(p.result, wire.TypeResult, x, nil, w) })
	}
	ws := <-p.ended
	x.mu.Lock()
	x.reaped, x.reapedAt = exitOf(ws, x.timedOut), time.Now()
	x.mu.Unlock()
	close(x.done)
	// Children of the process may still write. The output ends when the last child has closed it.
	// The agent reads it even if the host has disconnected, because the host can request the result
	// later.
	x.expire(p)
	pumps.Wait()

	w.writeJSON(wire.TypeExit, x.finish(ws))
	a.restoreSignals()
}

// pid returns the id of the first process.
func (x *execution) pid() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leader
}

// finish records how the process ended.
func (x *execution) finish(ws syscall.WaitStatus) wire.Exit {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.exit = exitOf(ws, x.timedOut)
	x.ended = time.Now()
	if x.reaped == nil { // otherwise it is closed already
		close(x.done)
	}
	return *x.exit
}

// drainPeriod is the minimum time that the agent spends reading the remaining
// output of an ended process.
const drainPeriod = 50 * time.Millisecond

// tailMargin is the time between the end of an execution's tail and the execution's timeout, which
// would kill the children.
const tailMargin = 250 * time.Millisecond

// tailTime returns how long the agent waits for the end of the output after the
// process of x has ended.
func (x *execution) tailTime() time.Duration {
	tail := wire.TailTimeout
	if ms := x.call.TimeoutMS; ms > 0 {
		end := x.started.Add(time.Duration(ms)*time.Millisecond - wire.TimeoutSlack - tailMargin)
		tail = min(tail, time.Until(end))
	}
	return max(tail, drainPeriod)
}

// expire ends the output of the ended execution x after a limited time.
func (x *execution) expire(p *process) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.released {
		p.expire(drainPeriod)
		return
	}
	p.expire(x.tailTime())
}

// release ends the output of x immediately, because a save waits for the end of the call.
func (x *execution) release(p *process) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.released = true
	p.expire(drainPeriod)
}

type closerFunc func()

// Close implements io.Closer.
func (f closerFunc) Close() error {
	f()
	return nil
}

func exitOf(ws syscall.WaitStatus, timedOut bool) *wire.Exit {
	e := &wire.Exit{TimedOut: timedOut}
	if ws.Signaled() {
		e.Signal = int(ws.Signal())
	} else {
		e.Code = ws.ExitStatus()
	}
	return e
}

// handleControl handles the frames that the host sends while the process runs.
func (x *execution) handleControl(r *wire.Reader, stdin *os.File) {
	defer stdin.Close()
	for {
		f, err := r.Read()
		if err != nil {
			return // the host has disconnected; the process continues without input
		}
		switch f.Type {
		case wire.TypeStdin:
			// If the process has closed its input, discard the rest.
			if _, err := stdin.Write(f.Payload); err != nil {
				stdin.Close()
			}
		case wire.TypeStdinEOF:
			stdin.Close()
		}
	}
}

// floodGap is the maximum time between two small reads that are treated as a flood. During a flood,
// the agent pauses for floodPause so that the pipe fills.
const (
	floodGap   = time.Millisecond
	floodPause = 300 * time.Microsecond
)

// firstRead is the size of the first reads of a stream, until a read fills it. Most processes write
// little, and large buffers would cause garbage collections while other processes start.
const firstRead = 8 << 10

// maxRead is the size of later reads. The agent and the host each buffer up to this size for every
// stream whose reader does not read.
const maxRead = 64 << 10

// pump sends one stream of a process to the host, and stores its head and tail
// in keep.
func pump(from *os.File, t wire.Type, x *execution, keep *wire.HeadTail, w *writer) {
	buf := make([]byte, wire.HeaderSize+firstRead)
	var last time.Time
	draining, drained, after := false, 0, 0
	for {
		if draining {
			// The deadline is long enough to read the data in the pipe.
			from.SetReadDeadline(time.Now().Add(drainPeriod / 10))
		}
		n, err := from.Read(buf[wire.HeaderSize:])
		if now := time.Now(); n > 0 && err == nil {
			// A process that floods its pipe with small writes would wake the agent for each write,
			// so let the pipe fill. Output at typing speed is not delayed.
			if n < pipeSize/4 && now.Sub(last) < floodGap {
				time.Sleep(floodPause)
			}
			last = now
		}
		if n > 0 {
			if keep != nil {
				x.mu.Lock()
				keep.Write(buf[wire.HeaderSize : wire.HeaderSize+n])
				x.mu.Unlock()
			}
			wire.PutHeader(buf, t, n)
			w.writeFrame(buf[:wire.HeaderSize+n])
			if n == firstRead {
				buf = make([]byte, wire.HeaderSize+maxRead)
			}
		}
		if draining {
			drained += n
		}
		if isClosed(x.done) {
			after += n
		}
		switch {
		case err == nil && drained <= pipeSize && after <= wire.TailSize: // further data was written after the process had ended
		case errors.Is(err, os.ErrDeadlineExceeded) && !draining:
			// The process has ended. A slow host may have prevented the agent
			// from reading earlier output.
			draining = true
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
			// Another process still has the pipe open. Read and discard its output, so that the
			// process is not killed by SIGPIPE.
			from.SetReadDeadline(time.Time{})
			go func() {
				io.Copy(io.Discard, from)
				from.Close()
			}()
			return
		default:
			from.Close()
			return
		}
	}
}

// register adds an execution for the call.
func (a *Agent) register(call wire.Exec) (*execution, error) {
	if len(call.Argv) == 0 && call.Shell == "" {
		return nil, newFailure("invalid", "command", "nothing to run")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, exists := a.execs[call.ID]; exists || call.ID == "" {
		return nil, newFailure("invalid", "", "execution id %q is empty or taken", call.ID)
	}
	a.tag++
	x := &execution{
		call: call, tag: a.tag, plain: a.plain, started: time.Now(), done: make(chan struct{}),
		stdout: wire.NewHeadTail(call.Keep), stderr: wire.NewHeadTail(call.Keep),
	}
	a.execs[call.ID] = x
	a.order = append(a.order, call.ID)
	a.trim()
	return x, nil
}

// trim removes the oldest finished executions in excess of maxRemembered. The
// caller holds a.mu.
func (a *Agent) trim() {
	for i := 0; len(a.order) > maxRemembered && i < len(a.order); {
		x := a.execs[a.order[i]]
		x.mu.Lock()
		finished := x.exit != nil
		x.mu.Unlock()
		if !finished {
			i++
			continue
		}
		delete(a.execs, a.order[i])
		a.order = append(a.order[:i], a.order[i+1:]...)
	}
}

// forget removes an execution that was not started.
func (a *Agent) forget(x *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.execs, x.call.ID)
	for i, id := range a.order {
		if id == x.call.ID {
			a.order = append(a.order[:i], a.order[i+1:]...)
			return
		}
	}
}

// awaitOutput waits for the output of processes that have just ended, so that
// list includes it.
func (a *Agent) awaitOutput() {
	for end := time.Now().Add(3 * drainPeriod); time.Now().Before(end); time.Sleep(drainPeriod / 10) {
		a.mu.Lock()
		waits := false
		for _, x := range a.execs {
			x.mu.Lock()
			waits = waits || x.exit == nil && x.reaped != nil && time.Since(x.reapedAt) < 3*drainPeriod
			x.mu.Unlock()
		}
		a.mu.Unlock()
		if !waits {
			return
		}
	}
}

// list returns the retained executions, oldest first.
func (a *Agent) list() []wire.Execution {
	a.awaitOutput()
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]wire.Execution, 0, len(a.order))
	for _, id := range a.order {
		x := a.execs[id]
		x.mu.Lock()
		e := wire.Execution{
			ID: id, Argv: x.call.Argv, Shell: x.call.Shell,
			StartedMS: x.started.UnixMilli(), Exit: x.exit,
			Stdout: x.stdout.Output(), Stderr: x.stderr.Output(),
		}
		if !x.ended.IsZero() {
			e.EndedMS = x.ended.UnixMilli()
		}
		if e.Exit == nil && x.reaped != nil {
			// Its children are still writing, or the host is not reading. The host continues to
			// read when it has the exit.
			e.Exit, e.EndedMS = x.reaped, x.reapedAt.UnixMilli()
			e.Draining = true
		}
		x.mu.Unlock()
		out = append(out, e)
	}
	return out
}
