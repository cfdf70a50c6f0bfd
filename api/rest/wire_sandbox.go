package rest

import (
	"math"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// toDuration reads a field of milliseconds.
func toDuration(field string, ms int64) (time.Duration, error) {
	if ms > math.MaxInt64/int64(time.Millisecond) || ms < math.MinInt64/int64(time.Millisecond) {
		return 0, brig.InvalidField(field, "is out of range")
	}
	if ms < 0 {
		return 0, brig.InvalidField(field, "must not be negative").WithHint("leave it out for the default")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func toLimits(l *wire.Limits) brig.Limits {
	if l == nil {
		return brig.Limits{}
	}
	return brig.Limits{
		Memory: int64(l.Memory), CPUs: l.CPUs, Processes: l.Processes,
		OpenFiles: l.OpenFiles, Disk: int64(l.Disk), Output: int64(l.Output),
	}
}

func fromLimits(l brig.Limits) *wire.Limits {
	if l == (brig.Limits{}) {
		return nil
	}
	return &wire.Limits{
		Memory: wire.Size(l.Memory), CPUs: l.CPUs, Processes: l.Processes,
		OpenFiles: l.OpenFiles, Disk: wire.Size(l.Disk), Output: wire.Size(l.Output),
	}
}

func toSpec(in wire.Spec) (brig.Spec, error) {
	ttl, err := toDuration("ttl_ms", in.TTLMS)
	if err != nil {
		return brig.Spec{}, err
	}
	freeze, err := toDuration("freeze_after_ms", in.FreezeMS)
	if err != nil {
		return brig.Spec{}, err
	}
	spec := brig.Spec{
		Template: in.Template, Entrypoint: in.Entrypoint, User: in.DefaultUser, Dir: in.DefaultCwd,
		Name: in.Name, Image: in.Image, Env: in.Env, Labels: in.Labels, Limits: toLimits(in.Limits), TTL: ttl,
		Require:    wire.ToRequirement(in.Require),
		Placement:  wire.ToPlacement(in.Placement),
		FixedLease: in.FixedLease, FreezeAfter: freeze, Egress: in.Egress.Noun(), Secrets: wire.ToSecrets(in.Secrets),
		Workspace: in.Workspace.Noun(),
	}
	if in.Command == nil && in.Shell == "" && !in.Entrypoint {
		return spec, withoutProgram(in)
	}
	timeout, err := toDuration("timeout_ms", in.TimeoutMS)
	if err != nil {
		return spec, err
	}
	spec.Command = &brig.Command{
		Argv: in.Command, Shell: in.Shell, Env: in.CommandEnv, Dir: in.Cwd, User: in.User, Timeout: timeout,
	}
	return spec, nil
}

// withoutProgram refuses what is said of a main program that is not there.
func withoutProgram(in wire.Spec) error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"user", in.User != ""}, {"cwd", in.Cwd != ""},
		{"timeout_ms", in.TimeoutMS != 0}, {"command_env", in.CommandEnv != nil},
	} {
		if f.given {
			return brig.InvalidField(f.name, "is for the main program, and there is none").
				WithHint("give command or shell, or say it with each exec")
		}
	}
	return nil
}

func fromSpec(s brig.Spec) wire.Spec {
	out := wire.Spec{
		Template: s.Template, Entrypoint: s.Entrypoint, DefaultUser: s.User, DefaultCwd: s.Dir,
		Name: s.Name, Image: s.Image, Env: s.Env, Labels: s.Labels, Limits: fromLimits(s.Limits), TTLMS: s.TTL.Milliseconds(),
		FixedLease: s.FixedLease, FreezeMS: s.FreezeAfter.Milliseconds(),
		Egress: wire.FromEgress(s.Egress), Secrets: wire.FromSecrets(s.Secrets),
		Workspace: wire.FromWorkspaceUse(s.Workspace),
		Require:   wire.FromRequirement(s.Require),
		Placement: wire.FromPlacement(s.Placement),
	}
	if c := s.Command; c != nil {
		out.Command, out.Shell, out.CommandEnv = c.Argv, c.Shell, c.Env
		out.Cwd, out.User, out.TimeoutMS = c.Dir, c.User, c.Timeout.Milliseconds()
	}
	return out
}

func fromSandbox(s *brig.Sandbox) wire.Sandbox {
	out := wire.Sandbox{
		ID: string(s.ID), ScopedID: s.ScopedID(), Tenant: s.Tenant, State: string(s.State), Spec: fromSpec(s.Spec), Digest: s.Digest,
		Provider: s.Provider, Route: wire.FromRoute(s.Route), Created: s.Created, Expires: s.Expires, Ended: s.Ended, Notes: s.Notes, Pool: string(s.Pool),
		Enforcement: wire.FromEnforcement(s.Enforcement),
	}
	if e := s.Exit; e != nil {
		out.Exit = &wire.Exit{Code: e.Code, Reason: string(e.Reason), OOMKilled: e.OOMKilled, At: e.At}
	}
	return out
}

func fromPage(p *brig.Page) wire.Sandboxes {
	out := wire.Sandboxes{Sandboxes: []wire.Sandbox{}, NextCursor: p.Next}
	for _, s := range p.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, fromSandbox(s))
	}
	return out
}
