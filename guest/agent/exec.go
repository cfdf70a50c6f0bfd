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

// execution is one process tree, from its start on.
type execution struct {
	call    wire.Exec
	tag     uint32
	plain   bool // the tag is in the environment
	started time.Time

	mu             sync.Mutex // guards the fields below
	ended          time.Time
	leader         int      // id of the first process, and of its group
	terminal       *os.File // our side of its terminal, if it has one
	exit           *wire.Exit
	timedOut       bool
	stdout, stderr *wire.HeadTail
}

// exec starts a process, streams it to w and ends the call with its exit.
func (a *Agent) exec(call wire.Exec, r *wire.Reader, w *writer) {
	x, err := a.admit(call)
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
	w.json(wire.TypeStarted, wire.Started{PID: x.pid()})

	if call.TimeoutMS > 0 {
		clock := time.AfterFunc(time.Duration(call.TimeoutMS)*time.Millisecond, func() {
			x.mu.Lock()
			x.timedOut = true
			x.mu.Unlock()
			x.kill()
		})
		defer clock.Stop()
	}
	go x.control(r, p.stdin)

	var pumps sync.WaitGroup
	pumps.Go(func() { pump(p.stdout, wire.TypeStdout, x, x.stdout, w) })
	pumps.Go(func() { pump(p.stderr, wire.TypeStderr, x, x.stderr, w) })
	if p.result != nil {
		pumps.Go(func() { pump(p.result, wire.TypeResult, x, nil, w) })
	}
	ws := <-p.ended
	// What the process wrote before its end is in the pipes already. Children
	// that it leaves behind may hold them open for ever and are not waited for.
	p.expire(drainTime)
	pumps.Wait()

	w.json(wire.TypeExit, x.finish(ws))
	a.calm()
}

// pid is the id of the first process.
func (x *execution) pid() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leader
}

// finish writes down how the process ended.
func (x *execution) finish(ws syscall.WaitStatus) wire.Exit {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.exit = exitOf(ws, x.timedOut)
	x.ended = time.Now()
	return *x.exit
}

// drainTime is how long the pipes of a process that has ended are read for
// what is on its way.
const drainTime = 50 * time.Millisecond

func exitOf(ws syscall.WaitStatus, timedOut bool) *wire.Exit {
	e := &wire.Exit{TimedOut: timedOut}
	if ws.Signaled() {
		e.Signal = int(ws.Signal())
	} else {
		e.Code = ws.ExitStatus()
	}
	return e
}

// control carries out what the host sends while the process runs.
func (x *execution) control(r *wire.Reader, stdin *os.File) {
	defer stdin.Close()
	for {
		f, err := r.Read()
		if err != nil {
			return // the host has gone; the process goes on without input
		}
		switch f.Type {
		case wire.TypeStdin:
			// A process that has closed its input does not mind more of it.
			if _, err := stdin.Write(f.Payload); err != nil {
				stdin.Close()
			}
		case wire.TypeStdinEOF:
			stdin.Close()
		}
	}
}

// floodGap is how close two small reads are in a flood, and floodPause how
// long the pipe may then fill.
const (
	floodGap   = time.Millisecond
	floodPause = 300 * time.Microsecond
)

// firstRead is how much of a stream is read at once until it was that much:
// most processes say little, and large buffers are garbage that has to be
// collected while others start.
const firstRead = 8 << 10

// pump carries one stream of a process to the host, and into what is
// remembered of it.
func pump(from *os.File, t wire.Type, x *execution, keep *wire.HeadTail, w *writer) {
	buf := make([]byte, wire.HeaderSize+firstRead)
	var last time.Time
	draining, drained := false, 0
	for {
		if draining {
			// Long enough to find what is in the pipe, no longer.
			from.SetReadDeadline(time.Now().Add(drainTime / 10))
		}
		n, err := from.Read(buf[wire.HeaderSize:])
		if now := time.Now(); n > 0 && err == nil {
			// A process that floods its pipe in small writes would wake us for
			// each. Let the pipe fill while it does; what comes at a person's
			// pace is not held up.
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
			w.raw(buf[:wire.HeaderSize+n])
			if n == firstRead {
				buf = make([]byte, wire.HeaderSize+pipeSize)
			}
		}
		if draining {
			drained += n
		}
		switch {
		case err == nil && drained <= pipeSize: // more was not in the pipe when it ended
		case errors.Is(err, os.ErrDeadlineExceeded) && !draining:
			// The process has ended. A slow host may have kept us from what
			// it wrote before.
			draining = true
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
			// Somebody else still holds the pipe. Let them write to nobody
			// rather than die of a broken pipe.
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

// kill ends the tree of one execution, and is content when there is none.
func (a *Agent) kill(call wire.Kill) {
	a.mu.Lock()
	x := a.execs[call.ID]
	a.mu.Unlock()
	if x != nil {
		x.kill()
	}
}

func (x *execution) kill() {
	x.mu.Lock()
	leader, ended := x.leader, x.exit != nil
	x.mu.Unlock()
	if leader > 1 && !ended { // before it has no id, and after it another may
		killTree(leader, search{tag: x.tag, plain: x.plain, harmless: map[int]bool{}})
	}
}

// admit takes the call into the list of executions.
func (a *Agent) admit(call wire.Exec) (*execution, error) {
	if len(call.Argv) == 0 && call.Shell == "" {
		return nil, failure("invalid", "command", "nothing to run")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, taken := a.execs[call.ID]; taken || call.ID == "" {
		return nil, failure("invalid", "", "execution id %q is empty or taken", call.ID)
	}
	a.tag++
	x := &execution{
		call: call, tag: a.tag, plain: a.plain, started: time.Now(),
		stdout: wire.NewHeadTail(call.Keep), stderr: wire.NewHeadTail(call.Keep),
	}
	a.execs[call.ID] = x
	a.order = append(a.order, call.ID)
	a.trim()
	return x, nil
}

// trim forgets the oldest finished executions beyond what is remembered. The
// caller holds a.mu.
func (a *Agent) trim() {
	for i := 0; len(a.order) > remembered && i < len(a.order); {
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

// forget drops an execution that never started.
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

// list returns what is remembered, oldest first.
func (a *Agent) list() []wire.Execution {
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
		x.mu.Unlock()
		out = append(out, e)
	}
	return out
}
