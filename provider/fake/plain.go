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

// plain is a command of Exec's language that nobody waits for. It implements
// brig.Process.
type plain struct {
	in     *instance
	id     string
	pid    int
	cancel context.CancelCauseFunc
	stdin  *io.PipeWriter
	said   chan part
	done   chan struct{}
	res    brig.Result

	once   sync.Once
	closed chan struct{}
}

var _ brig.Process = (*plain)(nil)

var errGone = errors.New("the machine is gone")

// signalled is why a command ended.
type signalled string

func (s signalled) Error() string { return string(s) }

// startPlain starts one.
func (in *instance) startPlain(ctx context.Context, id string, cmd brig.Command) *plain {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r, w := io.Pipe()
	p := &plain{
		in: in, id: id, pid: int(in.pids.Add(1)), cancel: cancel, stdin: w,
		said: make(chan part), done: make(chan struct{}), closed: make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		defer func() { _ = r.Close() }()
		defer context.AfterFunc(ctx, func() { _ = w.Close() })() // nobody reads on when it is killed
		go func() {
			select {
			case <-in.done:
				cancel(nil)
			case <-p.done:
			}
		}()
		began := time.Now()
		code, _ := in.run(ctx, cmd, brig.IO{Stdin: r, Stdout: speaker{p, brig.FromStdout}, Stderr: speaker{p, brig.FromStderr}})
		p.res = brig.Result{ExecID: id, Done: true, ExitCode: code, Started: began, Duration: time.Since(began)}
		if s, ok := errors.AsType[signalled](context.Cause(ctx)); ok {
			p.res.Signal, p.res.ExitCode = string(s), map[signalled]int{"SIGKILL": 137, "SIGTERM": 143}[s]
		}
	}()
	return p
}

// speaker passes on what a command writes.
type speaker struct {
	p    *plain
	from brig.From
}

// Write implements io.Writer.
func (s speaker) Write(b []byte) (int, error) {
	select {
	case s.p.said <- part{s.from, append([]byte(nil), b...)}:
	case <-s.p.in.done:
	}
	return len(b), nil
}

// PID implements brig.Process.
func (p *plain) PID() int { return p.pid }

// Send implements brig.Process.
func (p *plain) Send([]byte) error { return io.ErrClosedPipe }

// Receive implements brig.Process.
func (p *plain) Receive() (brig.From, []byte, error) {
	select {
	case m := <-p.said:
		return m.from, m.b, nil
	case <-p.closed:
		return 0, nil, net.ErrClosed
	case <-p.done:
	case <-p.in.done:
	}
	return 0, nil, io.EOF
}

// Stdin implements brig.Process.
func (p *plain) Stdin() io.WriteCloser { return p.stdin }

// Resize implements brig.Process.
func (p *plain) Resize(context.Context, brig.Terminal) error { return nil }

// Signal implements brig.Process.
func (p *plain) Signal(_ context.Context, name string) error {
	p.cancel(signalled(name))
	return nil
}

// Kill implements brig.Process.
func (p *plain) Kill(ctx context.Context) error { return p.Signal(ctx, "SIGKILL") }

// Wait implements brig.Process.
func (p *plain) Wait(ctx context.Context) (*brig.Result, error) {
	select {
	case <-p.done:
		select {
		case <-p.in.done: // which is what ended it
			return nil, errGone
		default:
			return &p.res, nil
		}
	case <-p.in.done:
		return nil, errGone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements brig.Process.
func (p *plain) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}
