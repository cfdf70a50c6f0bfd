package envd

import (
	"context"
	"math"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/processpb"
)

// processes implements process.Process.
type processes struct{ *Envd }

func (s processes) processesOf(c *call) brig.Processes { return s.service.Processes(c.box.ID) }

// find returns the process for a selector. If several processes match, it
// returns the newest. It returns a process that has ended only if ended is
// true.
func (s processes) find(ctx context.Context, sel *pb.ProcessSelector, ended bool) (*brig.ProcessInfo, error) {
	fits := func(p *brig.ProcessInfo) bool { return p.PID == int(sel.GetPid()) }
	missing := brig.Errorf(brig.NotFound, "process with pid %d not found", sel.GetPid())
	switch sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
	case *pb.ProcessSelector_Tag:
		fits = func(p *brig.ProcessInfo) bool { return p.Spec.Tag == sel.GetTag() }
		missing = brig.Errorf(brig.NotFound, "process with tag %s not found", truncate(sel.GetTag()))
	default:
		return nil, brig.Errorf(brig.InvalidArgument, "no process is selected")
	}
	all, err := s.processesOf(callOf(ctx)).List(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if p := all[i]; fits(p) && (ended || p.Result == nil) {
			return p, nil
		}
	}
	return nil, missing
}

// List implements process.Process.
func (s processes) List(ctx context.Context, _ *pb.ListRequest) (*pb.ListResponse, error) {
	all, err := s.processesOf(callOf(ctx)).List(ctx)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	out := &pb.ListResponse{}
	for _, p := range all {
		if p.Result == nil {
			out.Processes = append(out.Processes, info(p))
		}
	}
	return out, nil
}

func info(p *brig.ProcessInfo) *pb.ProcessInfo {
	cmd := p.Spec.Command
	config := &pb.ProcessConfig{Envs: requestedEnv(cmd.Env)}
	if cmd.Dir != "" {
		config.Cwd = &cmd.Dir
	}
	switch {
	case len(cmd.Argv) > 0:
		config.Cmd, config.Args = cmd.Argv[0], cmd.Argv[1:]
	case cmd.Shell != "":
		config.Cmd, config.Args = "/bin/sh", []string{"-c", cmd.Shell}
	}
	out := &pb.ProcessInfo{Config: config, Pid: uint32(p.PID)}
	if p.Spec.Tag != "" {
		out.Tag = &p.Spec.Tag
	}
	return out
}

// Update implements process.Process.
func (s processes) Update(ctx context.Context, r *pb.UpdateRequest) (*pb.UpdateResponse, error) {
	p, err := s.find(ctx, r.GetProcess(), false)
	if err == nil && r.GetPty() != nil {
		var size brig.Terminal
		if size, err = terminal(r.GetPty()); err == nil {
			err = s.processesOf(callOf(ctx)).Resize(ctx, p.PID, size)
		}
	}
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return &pb.UpdateResponse{}, nil
}

// terminal returns the requested terminal size. The default is 80 by 24.
func terminal(p *pb.PTY) (brig.Terminal, error) {
	columns, rows := p.GetSize().GetCols(), p.GetSize().GetRows()
	if columns > math.MaxUint16 || rows > math.MaxUint16 {
		return brig.Terminal{}, brig.Errorf(brig.InvalidArgument, "a terminal cannot have %d columns and %d rows", columns, rows)
	}
	if columns == 0 {
		columns = 80
	}
	if rows == 0 {
		rows = 24
	}
	return brig.Terminal{Columns: uint16(columns), Rows: uint16(rows)}, nil
}

// SendSignal implements process.Process.
func (s processes) SendSignal(ctx context.Context, r *pb.SendSignalRequest) (*pb.SendSignalResponse, error) {
	p, err := s.find(ctx, r.GetProcess(), false)
	if err == nil {
		var name string
		switch r.GetSignal() {
		case pb.Signal_SIGNAL_SIGKILL:
			name = "SIGKILL"
		case pb.Signal_SIGNAL_SIGTERM:
			name = "SIGTERM"
		default:
			return nil, s.failure(ctx, brig.Errorf(brig.Unimplemented, "signal %d cannot be sent", r.GetSignal()))
		}
		err = s.processesOf(callOf(ctx)).Signal(ctx, p.PID, name)
	}
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return &pb.SendSignalResponse{}, nil
}

// CloseStdin implements process.Process.
func (s processes) CloseStdin(ctx context.Context, r *pb.CloseStdinRequest) (*pb.CloseStdinResponse, error) {
	p, err := s.find(ctx, r.GetProcess(), false)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	if p.Spec.Terminal != nil {
		return nil, errInvalidInput("the process has a terminal, which cannot be closed: send the byte 0x04")
	}
	err = s.processesOf(callOf(ctx)).CloseInput(ctx, p.PID)
	if closed := brig.KindOf(err) == brig.FailedPrecondition && !s.causedByEnd(ctx, err); err != nil && !closed {
		return nil, s.failure(ctx, err)
	}
	return &pb.CloseStdinResponse{}, nil
}
