package fake

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// plainProcess is a background command in Exec's language. It implements brig.Process.
type plainProcess struct {
	in     *instance
	id     string
	pid    int
	cancel context.CancelCauseFunc
	stdin  *io.PipeWriter
	parts  chan part
	done   chan struct{}
	res    *brig.Result
	cmd    brig.Command

	once   sync.Once
	closed chan struct{}
}

var _ brig.Process = (*plainProcess)(nil)

var errGone = errors.New("the machine is gone")

// signalError is the signal that ended a command.
type signalError string

func (s signalError) Error() string { return string(s) }

// startPlain starts a background command.
func (in *instance) startPlain(ctx context.Context, id string, cmd brig.Command) *plainProcess {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r, w := io.Pipe()
	p := &plainProcess{
		in: in, id: id, pid: int(in.pids.Add(1)), cancel: cancel, stdin: w,
		parts: make(chan part, 16), done: make(chan struct{}), closed: make(chan struct{}), res: &brig.Result{}, cmd: cmd,
	}
	go func() {
		defer close(p.done)
		defer func() { _ = r.Close() }()
		defer context.AfterFunc(ctx, func() { _ = w.Close() })() // a kill closes the command's input
		go func() {
			select {
			case <-in.done:
				cancel(nil)
			case <-p.done:
			}
		}()
		began := time.Now()
		code, _ := in.run(ctx, cmd, brig.IO{Stdin: r, Stdout: outputWriter{p, brig.FromStdout}, Stderr: outputWriter{p, brig.FromStderr}})
		*p.res = brig.Result{ExecID: id, Done: true, ExitCode: code, Started: began, Duration: time.Since(began)}
		if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			p.res.Signal, p.res.ExitCode = string(s), map[signalError]int{"SIGKILL": 137, "SIGTERM": 143}[s]
		}
	}()
	return p
}

// attach returns a new handle of the command, for the next attachment.
func (p *plainProcess) attach() *plainProcess {
	return &plainProcess{
		in: p.in, id: p.id, pid: p.pid, cancel: p.cancel, stdin: p.stdin, parts: p.parts, done: p.done,
		res: p.res, cmd: p.cmd, closed: make(chan struct{}),
	}
}

// outputWriter forwards a command's output to Receive.
type outputWriter struct {
	p    *plainProcess
	from brig.From
}

// Write implements io.Writer.
func (s outputWriter) Write(b []byte) (int, error) {
	select {
	case s.p.parts <- part{s.from, append([]byte(nil), b...)}:
	case <-s.p.in.done:
	}
	return len(b), nil
}

// PID implements brig.Process.
func (p *plainProcess) PID() int { return p.pid }

// Send implements brig.Process.
func (p *plainProcess) Send([]byte) error { return io.ErrClosedPipe }

// Receive implements brig.Process.
func (p *plainProcess) Receive() (brig.From, []byte, error) {
	select {
	case m := <-p.parts:
		return m.from, m.b, nil
	case <-p.closed:
		return 0, nil, net.ErrClosed
	case <-p.done:
	case <-p.in.done:
	}
	select {
	case m := <-p.parts:
		return m.from, m.b, nil
	default:
		return 0, nil, io.EOF
	}
}

// Stdin implements brig.Process.
func (p *plainProcess) Stdin() io.WriteCloser { return p.stdin }

// Resize implements brig.Process.
func (p *plainProcess) Resize(context.Context, brig.Terminal) error { return nil }

// Signal implements brig.Process.
func (p *plainProcess) Signal(_ context.Context, name string) error {
	p.cancel(signalError(name))
	return nil
}

// Kill implements brig.Process.
func (p *plainProcess) Kill(ctx context.Context) error { return p.Signal(ctx, "SIGKILL") }

// Wait implements brig.Process.
func (p *plainProcess) Wait(ctx context.Context) (*brig.Result, error) {
	select {
	case <-p.done:
		select {
		case <-p.in.done: // the command ended with the instance
			return nil, errGone
		default:
			return p.res, nil
		}
	case <-p.in.done:
		return nil, errGone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements brig.Process.
func (p *plainProcess) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}
