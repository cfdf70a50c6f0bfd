package engine

import (
	"context"
	"net"
	"strings"

	"github.com/brig-run/brig"
)

// processService implements brig.Processes for one sandbox. Every call passes the gate.
type processService struct {
	e    *programs
	name string
}

// Processes implements brig.Service.
func (pg *programs) Processes(name string) brig.Processes { return processService{pg, name} }

func (d processService) Start(ctx context.Context, spec brig.ProcessSpec) (out *brig.ProcessInfo, err error) {
	note := func(v *call) { v.addCommand(spec.Command) }
	err = d.e.lifecycle.withInstanceDetails(ctx, brig.OpStart, d.name, note, func(v *call, in brig.Instance) error {
		if err := checkProcess(spec); err != nil {
			return err
		}
		spec.Command = applySandboxDefaults(v.rec.Spec, spec.Command)
		out, err = d.e.startProcess(ctx, nil, v.rec, in, spec)
		return err
	})
	return out, err
}

func checkProcess(spec brig.ProcessSpec) error {
	if spec.Command.Timeout < 0 {
		return brig.InvalidField("timeout_ms", "%v is negative", spec.Command.Timeout)
	}
	if len(spec.Tag) > 256 || strings.ContainsRune(spec.Tag, 0) {
		return brig.InvalidField("tag", "%q cannot be a tag", truncate(spec.Tag)).WithHint("give up to 256 bytes without NUL")
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

func (d processService) List(ctx context.Context) (out []*brig.ProcessInfo, err error) {
	err = d.e.lifecycle.withInstance(ctx, brig.OpProcesses, d.name, func(v *call, _ brig.Instance) error {
		out = d.e.processesOf(v.rec.ID).list()
		return nil
	})
	return out, err
}

func (d processService) Attach(ctx context.Context, pid int, from int64, on func(brig.ProcessEvent) error) error {
	return d.e.lifecycle.withInstance(ctx, brig.OpAttach, d.name, func(v *call, _ brig.Instance) error {
		p, err := d.e.processesOf(v.rec.ID).find(pid, false)
		if err != nil {
			return err
		}
		release, err := d.e.streams.reserve(v)
		if err != nil {
			return err
		}
		defer release()
		ctx, done := d.e.endedByPause(ctx, v.rec.ID)
		defer done()
		return p.outputBuffer.Follow(ctx, from, on)
	})
}

// withProcess calls f with a running process.
func (d processService) withProcess(ctx context.Context, op brig.Op, pid int, f func(in brig.Instance, p *process) error) error {
	return d.e.lifecycle.withInstance(ctx, op, d.name, func(v *call, in brig.Instance) error {
		p, err := d.e.processesOf(v.rec.ID).find(pid, true)
		if err != nil {
			return err
		}
		return f(in, p)
	})
}

func (d processService) WriteInput(ctx context.Context, pid int, b []byte) error {
	return d.withProcess(ctx, brig.OpInput, pid, func(_ brig.Instance, p *process) error { return p.write(ctx, b) })
}

func (d processService) CloseInput(ctx context.Context, pid int) error {
	return d.withProcess(ctx, brig.OpCloseInput, pid, func(in brig.Instance, p *process) error {
		if p.spec.Terminal != nil {
			return brig.Errorf(brig.FailedPrecondition, "a terminal cannot be closed").WithHint("send it Ctrl-D, the byte 4")
		}
		d.e.closeStdin(in, p)
		return nil
	})
}

func (d processService) Signal(ctx context.Context, pid int, name string) error {
	return d.withProcess(ctx, brig.OpSignal, pid, func(_ brig.Instance, p *process) error {
		if name == "SIGKILL" {
			return p.Kill(ctx)
		}
		return p.Process.Signal(ctx, name)
	})
}

func (d processService) Resize(ctx context.Context, pid int, size brig.Terminal) error {
	return d.withProcess(ctx, brig.OpResize, pid, func(_ brig.Instance, p *process) error {
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
func (pg *programs) Dial(ctx context.Context, name string, port int) (out net.Conn, err error) {
	err = pg.lifecycle.withInstance(ctx, brig.OpDial, name, func(v *call, in brig.Instance) error {
		release, err := pg.streams.reserve(v)
		if err != nil {
			return err
		}
		c, err := in.Dial(ctx, port)
		if err != nil {
			release()
			return err
		}
		releaseUse := v.takeRelease()
		remove := pg.usesOf(v.rec.ID).addPassive(func() {
			_ = c.Close()
			releaseUse()
		})
		out = streamConn{activeConn{c, func() { remove(); releaseUse() }}, release}
		return nil
	})
	return out, err
}
