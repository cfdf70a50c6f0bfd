package rest

import (
	"encoding/json"
	"fmt"
	"mime"
	"path"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func toProgram(in wire.RunRequest) (brig.Program, error) {
	p := brig.Program{
		Language: brig.Language(in.Language), Code: in.Code, Command: in.Command, Name: in.Name, Image: in.Image,
		Arguments: json.RawMessage(in.Arguments), Env: in.Env, Limits: toLimits(in.Limits), User: in.User, Labels: in.Labels,
		Egress: in.Egress.Noun(), Secrets: wire.ToSecrets(in.Secrets),
		Workspace: in.Workspace.Noun(), Require: wire.ToRequirement(in.Require), Placement: wire.ToPlacement(in.Placement),
	}
	if in.Step != nil {
		p.Step = &brig.Step{State: json.RawMessage(in.Step.State), Count: in.Step.Count, Packages: in.Step.Packages}
	}
	var err error
	if in.Language != "" {
		if p.Language, err = brig.ParseLanguage(in.Language); err != nil {
			return p, err
		}
	}
	if p.Timeout, err = toDuration("timeout_ms", in.TimeoutMS); err != nil {
		return p, err
	}
	if p.Grace, err = toDuration("grace_ms", in.GraceMS); err != nil {
		return p, err
	}
	for i, f := range in.Files {
		file := brig.File{Path: f.Path, Data: f.ContentB64, Mode: uint32(f.Mode)}
		switch {
		case f.Content != nil && f.ContentB64 != nil:
			return p, brig.InvalidField(fmt.Sprintf("files[%d].content_b64", i), "is given beside content").WithHint("give one of the two")
		case f.Content != nil:
			file.Data = []byte(*f.Content)
		case f.ContentB64 == nil:
			return p, brig.InvalidField(fmt.Sprintf("files[%d].content", i), "is missing").WithHint("give content or content_b64")
		}
		p.Files = append(p.Files, file)
	}
	return p, nil
}

func fromOutcome(o *brig.Outcome) wire.RunAnswer {
	out := wire.RunAnswer{
		ID:      string(o.ID),
		Sandbox: o.Sandbox, Value: o.Value, HasResult: o.Value != nil,
		Artifacts: []wire.Artifact{}, ArtifactsSkipped: o.Skipped, Route: wire.FromRoute(o.Route), Pool: string(o.Pool), Result: fromResult(&o.Result),
		Workspace: wire.FromWorkspaceCommit(o.Workspace),
	}
	if o.Step != nil {
		out.Step = &wire.StepAnswer{Outputs: fromRich(o.Step.Outputs), State: wire.Object(o.Step.State), Packages: o.Step.Packages}
	}
	for _, f := range o.Artifacts {
		data := f.Data
		if data == nil {
			data = []byte{}
		}
		out.Artifacts = append(out.Artifacts, wire.Artifact{
			Path: f.Path, MIMEType: mimeType(f.Path), Size: int64(len(f.Data)), ContentB64: data, Mode: wire.Mode(f.Mode & 0o777),
		})
	}
	if e := o.Error; e != nil {
		out.Error = &wire.ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
	}
	return out
}

func mimeType(name string) string {
	if t, ok := brig.ArtifactTypes[path.Ext(name)]; ok {
		return t
	}
	if t, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name))); err == nil {
		return t
	}
	return "application/octet-stream"
}
