package envd

import (
	"context"
	"maps"
	"strings"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/processpb"
)

// Start implements process.Process.
func (s processes) Start(ctx context.Context, r *pb.StartRequest, out *connect.ServerStream[pb.StartResponse]) error {
	c := callOf(ctx)
	spec, err := s.spec(ctx, c, r)
	if err != nil {
		return s.failure(ctx, err)
	}
	p, err := s.of(c).Start(ctx, spec)
	if err != nil {
		if seen := brig.AsError(err); seen.Kind == brig.InvalidArgument && (seen.Field == "cwd" || seen.Field == "dir") {
			err = noDirectory(spec.Command.Dir)
		}
		return s.failure(ctx, err)
	}
	return s.follow(ctx, c, following{
		pid: p.PID, terminal: spec.Terminal != nil, own: true,
		send: func(ev *pb.ProcessEvent) error { return out.Send(&pb.StartResponse{Event: ev}) },
	})
}

// spec says what a request wants to have started.
func (s processes) spec(ctx context.Context, c *call, r *pb.StartRequest) (brig.ProcessSpec, error) {
	user, home, err := c.who()
	if err != nil {
		return brig.ProcessSpec{}, err
	}
	config := r.GetProcess()
	if config.GetCmd() == "" {
		return brig.ProcessSpec{}, brig.Errorf(brig.InvalidArgument, "there is no command")
	}
	cwd := config.GetCwd()
	if cwd == "" && c.user == "" { // who says who, begins at home
		cwd = c.box.Dir
	}
	dir, err := resolve(home, cwd)
	if err != nil {
		return brig.ProcessSpec{}, err
	}
	if dir != home {
		_, err := s.service.Files(c.box.ID).Stat(ctx, brig.Path{Name: dir, User: user})
		if brig.KindOf(err) == brig.NotFound && !s.dead(ctx, err) {
			err = noDirectory(dir)
		}
		if err != nil {
			return brig.ProcessSpec{}, err
		}
	}
	spec := brig.ProcessSpec{
		Command: brig.Command{
			Argv: append([]string{config.GetCmd()}, config.GetArgs()...), Env: c.environ(config.GetEnvs()),
			Dir: dir, User: user, Timeout: c.timeout,
		},
		NoInput: r.Stdin != nil && !r.GetStdin(),
		Tag:     r.GetTag(),
	}
	if r.Pty != nil {
		size, err := terminal(r.GetPty())
		if err != nil {
			return spec, err
		}
		spec.Terminal, spec.NoInput = &size, false
	}
	return spec, nil
}

// contract begins the variables that every process has by contract. Some are
// only known since the sandbox was created, so processes are given them here.
const contract = "E2B_"

// environ is what a process is given, on top of what the sandbox has.
func (c *call) environ(asked map[string]string) map[string]string {
	env := maps.Clone(c.box.Env)
	maps.DeleteFunc(env, func(k, _ string) bool { return !strings.HasPrefix(k, contract) })
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, asked)
	return env
}

// asked is what the caller asked for of what a process was given.
func asked(env map[string]string) map[string]string {
	out := maps.Clone(env)
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, contract) })
	return out
}

func noDirectory(dir string) error {
	return brig.Errorf(brig.InvalidArgument, "cwd '%s' does not exist", clip(dir))
}

// Connect implements process.Process.
func (s processes) Connect(ctx context.Context, r *pb.ConnectRequest, out *connect.ServerStream[pb.ConnectResponse]) error {
	p, err := s.find(ctx, r.GetProcess(), true)
	if err != nil {
		return s.failure(ctx, err)
	}
	return s.follow(ctx, callOf(ctx), following{
		// From where the output is by now: -1 would lose what is written
		// after the client has been told that it is connected.
		pid: p.PID, from: p.Written, terminal: p.Spec.Terminal != nil,
		send: func(ev *pb.ProcessEvent) error { return out.Send(&pb.ConnectResponse{Event: ev}) },
	})
}
