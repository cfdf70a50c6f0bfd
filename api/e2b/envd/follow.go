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

// The most output that one event carries, from pipes and from a terminal.
const (
	mostPiped = 32 << 10
	mostTyped = 16 << 10
)

// overtime is how long the end of a process whose time is up may take to be
// told.
const overtime = 10 * time.Second

// following is a stream about one process.
type following struct {
	pid      int
	from     int64
	terminal bool
	// own says that the stream's timeout is the process's as well.
	own  bool
	send func(*pb.ProcessEvent) error
}

// follow tells a client what a process does until its end. The client's going
// away is no matter to the process.
func (s processes) follow(ctx context.Context, c *call, f following) error {
	if f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: uint32(f.pid)}}}) != nil {
		return nil // nobody is there to be told
	}
	limit := c.timeout
	if limit > 0 && f.own {
		limit += overtime // the service keeps the time
	}
	within, cancel := bounded(ctx, limit)
	defer cancel()
	var end *brig.Result
	p := newPulse(within, c.every, func() error {
		return f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}})
	})
	err := s.of(c).Attach(p.ctx, f.pid, f.from, func(ev brig.ProcessEvent) error {
		if ev.End != nil {
			end = ev.End
			return nil
		}
		return p.do(func() error { return f.output(ev) })
	})
	if p.stop() != nil {
		return nil // the client is gone
	}
	switch {
	case end != nil && end.TimedOut && f.own:
		return outOfTime(c.timeout)
	case end != nil && killed(end) && !s.alive(ctx, c.box.ID): // by the end of everything
		err = brig.Errorf(brig.NotFound, gone)
	case end != nil:
		return f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: ending(end)}})
	}
	return s.interrupted(ctx, within, err)
}

// bounded is context.WithTimeout, where 0 is for ever.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func outOfTime(d time.Duration) error {
	return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the time of %v is up", d))
}

// interrupted ends a stream that has begun, before what it tells of has ended.
// ctx is the request's, within is bounded by the stream's timeout.
func (e *Envd) interrupted(ctx, within context.Context, err error) error {
	switch c := callOf(ctx); {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil // the client is gone
	case errors.Is(within.Err(), context.DeadlineExceeded):
		return outOfTime(c.timeout)
	case err == nil:
		err = brig.Errorf(brig.Internal, "a stream ended without an end")
	}
	if e.dead(ctx, err) {
		callOf(ctx).out.abort()
		return errGone() // which does not get out
	}
	return e.failure(ctx, err)
}

// output sends a part of the output, in parts that are not too large.
func (f following) output(ev brig.ProcessEvent) error {
	most := mostPiped
	if f.terminal {
		most = mostTyped
	}
	for data := ev.Output; len(data) > 0; {
		n := min(len(data), most)
		d := &pb.ProcessEvent_DataEvent{}
		switch {
		case f.terminal:
			d.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: data[:n]}
		case ev.From == brig.FromStderr:
			d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: data[:n]}
		default:
			d.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: data[:n]}
		}
		if err := f.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// killed reports whether a process did not end by itself.
func killed(r *brig.Result) bool { return r.Signal != "" || r.TimedOut || r.OOMKilled }

// ending says how a process ended, as Go does.
func ending(r *brig.Result) *pb.ProcessEvent_EndEvent {
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
