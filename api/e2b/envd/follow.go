package envd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/processpb"
)

// Largest output of one event, from pipes and from a terminal, in bytes.
const (
	maxPipeInput     = 32 << 10
	maxTerminalInput = 16 << 10
)

// timeoutGrace is how long a stream waits for the end of a process that has timed
// out.
const timeoutGrace = 10 * time.Second

// subscription describes a stream of the events of one process.
type subscription struct {
	pid      int
	from     int64
	terminal bool
	// ownsTimeout reports whether the stream's timeout is also the timeout of the
	// process.
	ownsTimeout bool
	send        func(*pb.ProcessEvent) error
}

// follow sends the events of a process to a client until the process ends. The
// process keeps running if the client disconnects.
func (s processes) follow(ctx context.Context, c *call, f subscription) error {
	if f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: uint32(f.pid)}}}) != nil {
		return nil // the client has disconnected
	}
	limit := c.timeout
	if limit > 0 && f.ownsTimeout {
		limit += timeoutGrace // the Service itself applies the timeout
	}
	within, cancel := withTimeout(ctx, limit)
	defer cancel()
	var end *brig.Result
	p := newKeepaliveSender(within, c.every, func() error {
		return f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}})
	})
	text := characters{maxEventSize: maxPipeInput, send: f.output, afterWait: func(flush func() error) {
		time.AfterFunc(maxCharacterWait, func() { _ = p.do(flush) }) // do records the error
	}}
	err := s.processesOf(c).Attach(p.ctx, f.pid, f.from, func(ev brig.ProcessEvent) error {
		if ev.End != nil {
			end = ev.End
			return nil
		}
		if f.terminal {
			return p.do(func() error { return f.terminalOutput(ev.Output) })
		}
		return p.do(func() error { return text.add(ev.From, ev.Output) })
	})
	_ = p.do(text.flush) // stop returns the error
	if p.stop() != nil {
		return nil // the client has disconnected
	}
	switch {
	case end != nil && end.TimedOut && f.ownsTimeout:
		return errTimeout(c.timeout)
	case end != nil && killed(end) && !s.isRunning(ctx, c.box.ID): // the process was killed because the sandbox ended
		err = brig.Errorf(brig.NotFound, gone)
	case end != nil:
		return f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: endEvent(end)}})
	}
	return s.interrupted(ctx, within, err)
}

// withTimeout is like context.WithTimeout, but 0 means unlimited.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func errTimeout(d time.Duration) error {
	return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the time of %v is up", d))
}

// interrupted returns the error for a stream that ends before its process or
// watch does. ctx is the request's context, and within also ends with the
// stream's timeout.
func (e *Envd) interrupted(ctx, within context.Context, err error) error {
	switch c := callOf(ctx); {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil // the client has disconnected
	case errors.Is(within.Err(), context.DeadlineExceeded):
		return errTimeout(c.timeout)
	case err == nil:
		err = brig.Errorf(brig.Internal, "a stream ended without an end")
	}
	if e.causedByEnd(ctx, err) {
		callOf(ctx).out.abort()
		return errGone() // not sent, because the response is aborted
	}
	return e.failure(ctx, err)
}

// output sends output of a process.
func (f subscription) output(from brig.From, data []byte) error {
	d := &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: data}}
	if from == brig.FromStderr {
		d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: data}
	}
	return f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}})
}

// terminalOutput sends output of a terminal in events of limited size.
func (f subscription) terminalOutput(data []byte) error {
	for len(data) > 0 {
		n := min(len(data), maxTerminalInput)
		d := &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: data[:n]}}
		if err := f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// killed reports whether a process was killed.
func killed(r *brig.Result) bool { return r.Signal != "" || r.TimedOut || r.OOMKilled }

// endEvent describes how a process ended, in the format of Go's os package.
func endEvent(r *brig.Result) *pb.ProcessEvent_EndEvent {
	if killed(r) {
		n := unix.SignalNum(r.Signal)
		if n == 0 {
			n = syscall.SIGKILL
		}
		status := "signal: " + n.String()
		return &pb.ProcessEvent_EndEvent{ExitCode: -1, Status: status, Error: &status}
	}
	out := &pb.ProcessEvent_EndEvent{ExitCode: int32(r.ExitCode), Exited: true, Status: fmt.Sprintf("exit status %d", r.ExitCode)}
	if r.ExitCode != 0 {
		out.Error = proto.String(out.Status)
	}
	return out
}
