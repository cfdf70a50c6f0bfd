package envd

import (
	"context"
	"maps"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/processpb"
)

// Start implements process.Process.
func (s processes) Start(ctx context.Context, r *pb.StartRequest, out *connect.ServerStream[pb.StartResponse]) error {
	c := callOf(ctx)
	c.body.releaseExcept(proto.Size(r))
	spec, err := s.spec(ctx, c, r)
	if err != nil {
		return s.failure(ctx, err)
	}
	p, err := s.processesOf(c).Start(ctx, spec)
	if err != nil {
		if seen := brig.AsError(err); seen.Kind == brig.InvalidArgument && (seen.Field == "cwd" || seen.Field == "dir") {
			err = errNoDirectory(spec.Command.Dir)
		}
		return s.failure(ctx, err)
	}
	return s.follow(ctx, c, subscription{
		pid: p.PID, terminal: spec.Terminal != nil, ownsTimeout: true,
		send: func(ev *pb.ProcessEvent) error { return out.Send(&pb.StartResponse{Event: ev}) },
	})
}

// spec converts a request to a process spec.
func (s processes) spec(ctx context.Context, c *call, r *pb.StartRequest) (brig.ProcessSpec, error) {
	who, err := c.resolveUser(ctx)
	if err != nil {
		return brig.ProcessSpec{}, err
	}
	config := r.GetProcess()
	if config.GetCmd() == "" {
		return brig.ProcessSpec{}, brig.Errorf(brig.InvalidArgument, "there is no command")
	}
	cwd := config.GetCwd()
	if cwd == "" { // as in E2B, the sandbox's directory applies to all users
		cwd = c.box.Dir
	}
	dir, err := resolve(who.home, cwd)
	if err != nil {
		return brig.ProcessSpec{}, err
	}
	if dir != who.home {
		_, err := s.service.Files(c.box.ID).Stat(ctx, brig.Path{Name: dir, User: who.user})
		if brig.KindOf(err) == brig.NotFound && !s.causedByEnd(ctx, err) {
			err = errNoDirectory(dir)
		}
		if err != nil {
			return brig.ProcessSpec{}, err
		}
	}
	spec := brig.ProcessSpec{
		Command: brig.Command{
			Argv: append([]string{config.GetCmd()}, config.GetArgs()...), Env: who.withAccount(c.environ(config.GetEnvs()), c.box.Env),
			Dir: dir, User: who.user, Timeout: c.timeout,
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

// envPrefix is the prefix of the variables that E2B guarantees to every
// process. Some of their values are known only after the sandbox was created,
// so each process receives them when it is started.
const envPrefix = "E2B_"

// environ returns a process's environment variables in addition to those of the
// sandbox.
func (c *call) environ(requested map[string]string) map[string]string {
	env := maps.Clone(c.box.Env)
	maps.DeleteFunc(env, func(k, _ string) bool { return !strings.HasPrefix(k, envPrefix) })
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, requested)
	return env
}

// requestedEnv returns the environment variables of a process that the caller
// requested.
func requestedEnv(env map[string]string) map[string]string {
	out := maps.Clone(env)
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, envPrefix) })
	return out
}

func errNoDirectory(dir string) error {
	return brig.Errorf(brig.InvalidArgument, "cwd '%s' does not exist", truncate(dir))
}

// Connect implements process.Process.
func (s processes) Connect(ctx context.Context, r *pb.ConnectRequest, out *connect.ServerStream[pb.ConnectResponse]) error {
	callOf(ctx).body.releaseExcept(proto.Size(r))
	p, err := s.find(ctx, r.GetProcess(), true)
	if err != nil {
		return s.failure(ctx, err)
	}
	return s.follow(ctx, callOf(ctx), subscription{
		// Start at the current offset. With -1, the stream would miss output
		// that is written after the client was notified that it is connected.
		pid: p.PID, from: p.Written, terminal: p.Spec.Terminal != nil,
		send: func(ev *pb.ProcessEvent) error { return out.Send(&pb.ConnectResponse{Event: ev}) },
	})
}
