package engine

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// processDoor is brig.Processes of one sandbox, behind the gate.
type processDoor struct {
	e    *Engine
	name string
}

// Processes implements brig.Service.
func (e *Engine) Processes(name string) brig.Processes { return processDoor{e, name} }

func (d processDoor) Start(ctx context.Context, spec brig.ProcessSpec) (out *brig.ProcessInfo, err error) {
	err = d.e.inside(ctx, brig.OpStart, d.name, func(v *visit, in brig.Instance) error {
		if err := checkProcess(spec); err != nil {
			return err
		}
		spec.Command = inSandbox(v.rec.Spec, spec.Command)
		out, err = d.e.startProcess(ctx, v.rec, in, spec)
		return err
	}, func(v *visit) { v.sayCommand(spec.Command) })
	return out, err
}

func checkProcess(spec brig.ProcessSpec) error {
	if spec.Command.Timeout < 0 {
		return brig.InvalidField("timeout_ms", "%v is negative", spec.Command.Timeout)
	}
	if len(spec.Tag) > 256 || strings.ContainsRune(spec.Tag, 0) {
		return brig.InvalidField("tag", "%q cannot be a tag", clip(spec.Tag)).WithHint("give up to 256 bytes without NUL")
	}
	if spec.Terminal != nil {
		if err := checkTerminal(*spec.Terminal); err != nil {
			return err
		}
	}
	return checkCommand("env", spec.Command)
}

func checkTerminal(t brig.Terminal) error {
	if t.Columns == 0 || t.Rows == 0 {
		return brig.InvalidField("terminal", "a terminal of %d by %d", t.Columns, t.Rows).WithHint("for example 80 columns and 24 rows")
	}
	return nil
}

func (d processDoor) List(ctx context.Context) (out []*brig.ProcessInfo, err error) {
	err = d.e.inside(ctx, brig.OpProcesses, d.name, func(v *visit, _ brig.Instance) error {
		out = d.e.processesOf(v.rec.ID).list()
		return nil
	})
	return out, err
}

func (d processDoor) Attach(ctx context.Context, pid int, from int64, on func(brig.ProcessEvent) error) error {
	return d.e.inside(ctx, brig.OpAttach, d.name, func(v *visit, in brig.Instance) error {
		p, err := d.e.processesOf(v.rec.ID).find(pid, false)
		if err != nil {
			return err
		}
		defer d.e.stay(ctx, v.rec, in)()
		return p.tape.follow(ctx, from, on)
	})
}

// stay renews a lease while somebody is there, until the returned function is
// called.
func (e *Engine) stay(ctx context.Context, rec *brig.Record, in brig.Instance) (leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(rec.Spec.TTL/3, time.Second))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = e.renew(ctx, rec, in, 0) // a lease that is not renewed ends, and that is told
			}
		}
	}()
	return func() { cancel(); <-done }
}

// to does something to a process that runs.
func (d processDoor) to(ctx context.Context, op brig.Op, pid int, f func(in brig.Instance, p *process) error) error {
	return d.e.inside(ctx, op, d.name, func(v *visit, in brig.Instance) error {
		p, err := d.e.processesOf(v.rec.ID).find(pid, true)
		if err != nil {
			return err
		}
		return f(in, p)
	})
}

func (d processDoor) Input(ctx context.Context, pid int, b []byte) error {
	return d.to(ctx, brig.OpInput, pid, func(_ brig.Instance, p *process) error { return p.write(ctx, b) })
}

func (d processDoor) CloseInput(ctx context.Context, pid int) error {
	return d.to(ctx, brig.OpCloseInput, pid, func(in brig.Instance, p *process) error {
		if p.spec.Terminal != nil {
			return brig.Errorf(brig.FailedPrecondition, "a terminal cannot be closed").WithHint("send it Ctrl-D, the byte 4")
		}
		d.e.closeInput(in, p)
		return nil
	})
}

func (d processDoor) Signal(ctx context.Context, pid int, name string) error {
	return d.to(ctx, brig.OpSignal, pid, func(_ brig.Instance, p *process) error {
		if name == "SIGKILL" {
			return p.Kill(ctx)
		}
		return p.Process.Signal(ctx, name)
	})
}

func (d processDoor) Resize(ctx context.Context, pid int, size brig.Terminal) error {
	return d.to(ctx, brig.OpResize, pid, func(_ brig.Instance, p *process) error {
		if p.spec.Terminal == nil {
			return brig.Errorf(brig.FailedPrecondition, "the process has no terminal").WithHint("start it with one")
		}
		if err := checkTerminal(size); err != nil {
			return err
		}
		return p.Process.Resize(ctx, size)
	})
}

// Dial implements brig.Service.
func (e *Engine) Dial(ctx context.Context, name string, port int) (out net.Conn, err error) {
	err = e.inside(ctx, brig.OpDial, name, func(v *visit, in brig.Instance) error {
		c, err := in.Dial(ctx, port)
		if err != nil {
			return err
		}
		out = heldConn{c, v.takeRest()}
		return nil
	})
	return out, err
}
