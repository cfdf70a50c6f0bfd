package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Process is a program whose descriptors the host owns, so that its data does
// not pass through the agent. It implements brig.Process.
type Process struct {
	program
	stdin  *os.File
	stream *stream

	sendMu sync.Mutex // one message at a time
}

var _ brig.Process = (*Process)(nil)

// Start implements brig.Instance.Start.
func (g *Guest) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (*Process, error) {
	ours, theirs, err := newChannels()
	if err != nil {
		return nil, err
	}
	defer theirs.close()
	req := g.newExec(id, cmd, brig.IO{})
	req.Donated, req.TimeoutMS, req.Plain = true, 0, !s.Channel
	if s.Terminal != nil {
		req.Terminal = &wire.Terminal{Columns: s.Terminal.Columns, Rows: s.Terminal.Rows}
	}
	// The connection outlives ctx, which limits only the start.
	conn, end, err := g.callFrom(ctx, context.WithoutCancel(ctx), wire.Call{Op: wire.OpExec, Exec: req})
	if err != nil {
		ours.close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	pid := 0
	if err = theirs.sendTo(conn); err == nil {
		pid, err = awaitStart(ctx, conn)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		ours.close()
		end()
		return nil, err
	}
	return g.newProcess(id, pid, conn, ours, req.Plain)
}

// awaitStart reads the agent's report that the process has started, and returns
// the process's id.
func awaitStart(ctx context.Context, conn net.Conn) (pid int, err error) {
	f, err := wire.NewReader(conn).Read()
	switch {
	case err != nil:
		return 0, causeOrError(ctx, err)
	case f.Type == wire.TypeError:
		return 0, decodeAgentError(f.Payload)
	case f.Type != wire.TypeStarted:
		return 0, newViolation("unexpected frame %d", f.Type)
	}
	var s wire.Started
	if err := json.Unmarshal(f.Payload, &s); err != nil {
		return 0, newMalformedError("start", err)
	}
	return s.PID, nil
}

// newProcess takes over a running process.
func (g *Guest) newProcess(id string, pid int, conn net.Conn, fds fdset, plain bool) (*Process, error) {
	s, err := newStream(fds[1], fds[2], fds[3], plain)
	if err != nil {
		fds.close()
		conn.Close()
		return nil, err
	}
	p := &Process{
		program: newProgram(g, id, pid, conn), stream: s,
		stdin: os.NewFile(uintptr(fds[0]), "stdin"),
	}
	go func() {
		p.await()
		s.disconnect() // children may keep the channel open
	}()
	return p, nil
}

// Send implements brig.Process.
func (p *Process) Send(message []byte) error {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	return p.stream.send(append(message, '\n'))
}

// Receive implements brig.Process.
func (p *Process) Receive() (brig.From, []byte, error) { return p.stream.receive() }

// ReceiveRest is like Receive, for the output that follows the last message. It returns io.EOF when
// all processes have closed the output, or at the deadline.
func (p *Process) ReceiveRest(deadline time.Time) (brig.From, []byte, error) {
	return p.stream.receiveRest(deadline)
}

// LimitMessages sets the budget for messages that have not been received yet.
func (p *Process) LimitMessages(b brig.MessageBudget) { p.stream.pending.limit(b) }

// Stdin implements brig.Process.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// IsPlain reports whether the process has no message channel.
func (p *Process) IsPlain() bool { return p.stream.plain }

// Close implements brig.Process.
func (p *Process) Close() error {
	err := errors.Join(p.stdin.Close(), p.conn.Close())
	p.stream.close()
	return err
}

// SetHostname sets the host name of the sandbox.
func (g *Guest) SetHostname(ctx context.Context, name string) error {
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpName, Name: name})
}

// Renew gives a copy of a sandbox its own host name and generation.
func (g *Guest) Renew(ctx context.Context, r wire.Renew) error {
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpRenew, Renew: &r})
}

// WithDescriptors calls f with the descriptors that Reattach expects, so that the
// caller can keep them.
func (p *Process) WithDescriptors(f func(fds []int) error) error {
	if !p.stream.beginUse() {
		return net.ErrClosed
	}
	defer p.stream.endUse()
	stdin := syscall.Conn(p.stdin)
	if controlFD(stdin, func(int) error { return nil }) != nil {
		// The input is closed, so pass a descriptor without a reader instead.
		none, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer none.Close()
		stdin = none
	}
	return controlFD(stdin, func(stdin int) error {
		return controlFD(p.conn.(syscall.Conn), func(conn int) error {
			return f([]int{stdin, p.stream.stdout, p.stream.stderr, p.stream.control, conn})
		})
	})
}

// controlFD calls f with the descriptor of c.
func controlFD(c syscall.Conn, f func(fd int) error) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// Reattach takes over a process by its descriptors. It takes ownership of the descriptors even on
// error.
func (g *Guest) Reattach(id string, pid int, plain bool, fds []int) (*Process, error) {
	if len(fds) != len(fdset{})+1 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("adopt %s: %d descriptors", id, len(fds))
	}
	f := os.NewFile(uintptr(fds[len(fds)-1]), "exec")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		fdset(fds[:len(fdset{})]).close()
		return nil, fmt.Errorf("adopt %s: %w", id, err)
	}
	return g.newProcess(id, pid, conn, fdset(fds[:len(fdset{})]), plain)
}
