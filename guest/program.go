package guest

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// program is the common part of the processes that the server keeps running,
// regardless of which side holds their descriptors.
type program struct {
	g    *Guest
	id   string
	pid  int
	conn net.Conn // the agent's exec call, on which the exit arrives

	exited chan struct{}
	res    brig.Result // valid once exited is closed
	resErr error
}

func newProgram(g *Guest, id string, pid int, conn net.Conn) program {
	return program{g: g, id: id, pid: pid, conn: conn, exited: make(chan struct{})}
}

// await waits for the agent to report how the process ended.
func (p *program) await() {
	defer close(p.exited)
	p.res = brig.Result{ExecID: p.id, Started: time.Now().UTC()}
	f, err := wire.NewReader(p.conn).Read()
	var exit wire.Exit
	switch {
	case err != nil:
		err = newUnreadableError(err)
	case f.Type != wire.TypeExit:
		err = newViolation("unexpected frame %d", f.Type)
	default:
		if err = json.Unmarshal(f.Payload, &exit); err != nil {
			err = newMalformedError("exit", err)
		}
	}
	if err != nil {
		p.resErr = err
		return
	}
	setResult(&p.res, exit, false)
}

// ID returns the id under which the process was started.
func (p *program) ID() string { return p.id }

// PID implements brig.Process.
func (p *program) PID() int { return p.pid }

// Signal implements brig.Process.
func (p *program) Signal(ctx context.Context, name string) error {
	n := unix.SignalNum(name)
	if n == 0 {
		return brig.InvalidField("signal", "no signal %q", clipGuestText(name)).WithHint("give its name, for example SIGTERM, SIGINT or SIGKILL")
	}
	return p.g.callWithoutResult(ctx, wire.Call{Op: wire.OpSignal, Signal: &wire.Signal{ID: p.id, Number: int(n)}})
}

// Kill implements brig.Process. It repeats the request until the process tree has ended, and
// returns ErrAgentGone if the agent does not end the tree.
func (p *program) Kill(ctx context.Context) error {
	f := newTreeKill(ctx)
	defer f.stop()
	defer context.AfterFunc(ctx, f.stop)()
	err := p.g.runTreeKill(f, p.id, false)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Resize implements brig.Process.
func (p *program) Resize(ctx context.Context, size brig.Terminal) error {
	return p.g.callWithoutResult(ctx, wire.Call{Op: wire.OpResize, Resize: &wire.Resize{ID: p.id, Terminal: wire.Terminal(size)}})
}

// Wait implements brig.Process.
func (p *program) Wait(ctx context.Context) (*brig.Result, error) {
	select {
	case <-p.exited:
		return &p.res, p.resErr
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
