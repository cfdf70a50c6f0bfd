package client

import (
	"encoding/json"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// millis writes a duration. What is shorter than a millisecond becomes one,
// for 0 would ask for the default.
func millis(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	if d < 0 && d > -time.Millisecond {
		return -1
	}
	return d.Milliseconds()
}

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func fromLimits(l brig.Limits) *wire.Limits {
	if l == (brig.Limits{}) {
		return nil
	}
	return &wire.Limits{
		Memory: wire.Size(l.Memory), CPUs: l.CPUs, Processes: l.Processes,
		OpenFiles: l.OpenFiles, Disk: wire.Size(l.Disk), Output: wire.Size(l.Output),
	}
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

func fromSpec(s brig.Spec) wire.Spec {
	out := wire.Spec{
		Template: s.Template, Entrypoint: s.Entrypoint, DefaultUser: s.User, DefaultCwd: s.Dir,
		Name: s.Name, Image: s.Image, Env: s.Env, Labels: s.Labels, Limits: fromLimits(s.Limits), TTLMS: millis(s.TTL),
		FixedLease: s.FixedLease, FreezeMS: millis(s.FreezeAfter), Egress: wire.FromEgress(s.Egress), Secrets: wire.FromSecrets(s.Secrets),
		Workspace: wire.FromWorkspaceUse(s.Workspace),
		Require:   wire.FromRequirement(s.Require),
		Placement: wire.FromPlacement(s.Placement),
	}
	if c := s.Command; c != nil {
		out.Command, out.Shell, out.CommandEnv = c.Argv, c.Shell, c.Env
		out.Cwd, out.User, out.TimeoutMS = c.Dir, c.User, millis(c.Timeout)
	}
	return out
}

func fromCommand(c brig.Command) wire.ExecRequest {
	return wire.ExecRequest{
		Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir,
		User: c.User, TimeoutMS: millis(c.Timeout), Survive: c.Survive,
	}
}

func fromProgram(p brig.Program) wire.RunRequest {
	out := wire.RunRequest{
		Language: string(p.Language), Code: p.Code, Command: p.Command, Image: p.Image, Arguments: wire.Object(p.Arguments),
		Env: p.Env, Limits: fromLimits(p.Limits), TimeoutMS: millis(p.Timeout), GraceMS: millis(p.Grace),
		User: p.User, Name: p.Name, Labels: p.Labels,
		Egress: wire.FromEgress(p.Egress), Secrets: wire.FromSecrets(p.Secrets),
		Workspace: wire.FromWorkspaceUse(p.Workspace), Require: wire.FromRequirement(p.Require), Placement: wire.FromPlacement(p.Placement),
	}
	if p.Step != nil {
		out.Step = &wire.Step{State: wire.Object(p.Step.State), Count: p.Step.Count, Packages: p.Step.Packages}
	}
	for _, f := range p.Files {
		data := f.Data
		if data == nil {
			data = []byte{}
		}
		out.Files = append(out.Files, wire.File{Path: f.Path, ContentB64: data, Mode: wire.Mode(f.Mode)})
	}
	return out
}

func toSandbox(s wire.Sandbox) *brig.Sandbox {
	out := &brig.Sandbox{
		ID: brig.ID(s.ID), Tenant: s.Tenant, State: brig.State(s.State), Provider: s.Provider, Digest: s.Digest,
		Created: s.Created, Expires: s.Expires, Ended: s.Ended, Notes: s.Notes, Pool: brig.PoolUse(s.Pool), Route: wire.ToRoute(s.Route),
		Enforcement: wire.ToEnforcement(s.Enforcement),
		Spec: brig.Spec{
			Template: s.Template, Entrypoint: s.Entrypoint, User: s.DefaultUser, Dir: s.DefaultCwd,
			Name: s.Name, Image: s.Image, Env: s.Env, Labels: s.Labels, TTL: duration(s.TTLMS),
			FixedLease: s.FixedLease, FreezeAfter: duration(s.FreezeMS),
			Egress: s.Egress.Noun(), Secrets: wire.ToSecrets(s.Secrets),
			Workspace: s.Workspace.Noun(), Require: wire.ToRequirement(s.Require), Placement: wire.ToPlacement(s.Placement),
		},
	}
	out.Spec.Limits = toLimits(s.Limits)
	if s.Command != nil || s.Shell != "" {
		out.Spec.Command = &brig.Command{
			Argv: s.Command, Shell: s.Shell, Env: s.CommandEnv, Dir: s.Cwd, User: s.User, Timeout: duration(s.TimeoutMS),
		}
	}
	if e := s.Exit; e != nil {
		out.Exit = &brig.Exit{Code: e.Code, Reason: brig.ExitReason(e.Reason), OOMKilled: e.OOMKilled, At: e.At}
	}
	return out
}

func toResult(r wire.Result) *brig.Result {
	return &brig.Result{
		ExecID: r.Exec, ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled,
		Stdout:  toOutput(r.Stdout, r.StdoutB64, r.StdoutCut, r.StdoutBytes),
		Stderr:  toOutput(r.Stderr, r.StderrB64, r.StderrCut, r.StderrBytes),
		Started: r.Started, Duration: duration(r.DurationMS), Done: r.Done,
	}
}

// toOutput restores an output exactly. Text that was cut has a mark between
// its head and its tail; bytes have none.
func toOutput(text string, b64 []byte, cut *wire.Cut, total int64) brig.Output {
	kept := b64
	if kept == nil && text != "" {
		kept = []byte(text)
	}
	if cut == nil || cut.Head < 0 || cut.Tail < 0 || cut.Head > len(kept) || cut.Tail > len(kept)-cut.Head {
		return brig.Output{Head: kept, Total: total}
	}
	return brig.Output{Head: kept[:cut.Head:cut.Head], Tail: kept[len(kept)-cut.Tail:], Total: total}
}

func toExecution(x wire.Execution) *brig.Execution {
	return &brig.Execution{
		Sandbox: brig.ID(x.Sandbox), Result: *toResult(x.Result),
		Command: brig.Command{
			Argv: x.Command, Shell: x.Shell, Env: x.Env, Dir: x.Cwd,
			User: x.User, Timeout: duration(x.TimeoutMS), Survive: x.Survive,
		},
	}
}

func toOutcome(a wire.RunAnswer) *brig.Outcome {
	out := &brig.Outcome{Result: *toResult(a.Result), Sandbox: a.Sandbox, ID: brig.ID(a.ID), Skipped: a.ArtifactsSkipped, Pool: brig.PoolUse(a.Pool), Route: wire.ToRoute(a.Route)}
	out.Workspace = a.Workspace.Noun()
	if a.HasResult {
		if out.Value = a.Value; out.Value == nil {
			out.Value = json.RawMessage("null")
		}
	}
	if a.Step != nil {
		out.Step = &brig.StepOutcome{Outputs: toRich(a.Step.Outputs), State: json.RawMessage(a.Step.State), Packages: a.Step.Packages}
	}
	for _, f := range a.Artifacts {
		out.Artifacts = append(out.Artifacts, brig.File{Path: f.Path, Data: f.ContentB64, Mode: uint32(f.Mode)})
	}
	if e := a.Error; e != nil {
		out.Error = &brig.ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
	}
	return out
}

func toImage(i wire.Image) *brig.Image {
	out := &brig.Image{
		Digest: i.Digest, Names: i.Names, Size: i.Size, Files: i.Files, Created: i.Created, Source: i.Source,
		Manifest: i.Manifest, Notes: i.Notes,
	}
	if i.Config != nil {
		out.Config = brig.ImageConfig(*i.Config)
	}
	return out
}
