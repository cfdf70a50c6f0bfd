package client

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// toolCalls are the calls for tools.
type toolCalls struct{ *conn }

// toolSetups is the path of tool setups. The server supports tools only in Letta's API.
const toolSetups = "/v1/sandbox-config"

// RunTool implements brig.Service.
func (c toolCalls) RunTool(ctx context.Context, t brig.Tool) (*brig.ToolResult, error) {
	in := v1.LettaRun{
		Source: t.Source, Arguments: t.Arguments, Schema: t.Schema, Env: t.Env, State: t.State,
		Python: toPackages(t.Python, "=="), Node: toPackages(t.Node, "@"), Limit: t.Limit, TimeoutMS: t.Timeout.Milliseconds(),
	}
	if len(in.Arguments) == 0 {
		in.Arguments = []byte("{}")
	}
	if t.Name != "" {
		in.Name = &t.Name
	}
	if t.Language != "" {
		language := string(t.Language)
		in.SourceType = &language
	}
	var out v1.LettaReturn
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/tools/run"}, in, &out); err != nil {
		return nil, err
	}
	return toToolResult(out), nil
}

func toToolResult(r v1.LettaReturn) *brig.ToolResult {
	return &brig.ToolResult{
		Value: nullToNil(r.Value), Text: r.ToolReturn, State: nullToNil(r.State), Error: r.Error,
		Stdout: linesOutput(r.Stdout), Stderr: linesOutput(r.Stderr), Fingerprint: r.Fingerprint, Sandbox: r.Sandbox, Reused: r.Reused,
		ExitCode: r.ExitCode, TimedOut: r.TimedOut, Duration: time.Duration(r.DurationMS) * time.Millisecond,
	}
}

// linesOutput converts list to an output. The output does not indicate whether a part was omitted.
func linesOutput(list []string) brig.Output {
	text := strings.Join(list, "")
	return brig.Output{Head: []byte(text), Total: int64(len(text))}
}

// nullToNil returns raw, or nil for null.
func nullToNil(raw []byte) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// toPackages converts requirements to package names and versions.
func toPackages(list []string, with string) (out []v1.LettaPackage) {
	for _, r := range list {
		p := v1.LettaPackage{Name: r}
		if i := strings.LastIndex(r, with); i > 0 {
			version := r[i+len(with):]
			p.Name, p.Version = r[:i], &version
		}
		out = append(out, p)
	}
	return out
}

// PutToolSetup implements brig.Service.
func (c toolCalls) PutToolSetup(ctx context.Context, s brig.ToolSetup) (*brig.ToolSetup, error) {
	rq := request{method: http.MethodPost, path: toolSetups + "/"}
	if s.ID != "" {
		rq.method, rq.path = http.MethodPatch, toolSetups+"/"+escapeSegment(v1.LettaConfigID+s.ID)
	}
	var out v1.LettaConfig
	if err := c.call(ctx, rq, v1.LettaConfigBody{Config: s.Config, Type: string(s.Kind)}, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// RenewToolSetup implements brig.Service.
func (c toolCalls) RenewToolSetup(ctx context.Context, kind brig.ToolKind) (*brig.ToolSetup, error) {
	if kind != brig.ToolLocal {
		return nil, brig.Errorf(brig.Unimplemented, "a server renews setups of the kind local alone").WithHint("give the setup another configuration")
	}
	var out v1.LettaConfig
	if err := c.call(ctx, request{method: http.MethodPost, path: toolSetups + "/local/recreate-venv"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// ToolSetups implements brig.Service.
func (c toolCalls) ToolSetups(ctx context.Context) ([]*brig.ToolSetup, error) {
	var list []v1.LettaConfig
	if err := c.call(ctx, request{method: http.MethodGet, path: toolSetups + "/"}, nil, &list); err != nil {
		return nil, err
	}
	var out []*brig.ToolSetup
	for _, s := range list {
		out = append(out, s.Domain())
	}
	return out, nil
}

// RemoveToolSetup implements brig.Service.
func (c toolCalls) RemoveToolSetup(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: toolSetups + "/" + escapeSegment(v1.LettaConfigID+id)}, nil, nil)
}

// PutToolVariable implements brig.Service.
func (c toolCalls) PutToolVariable(ctx context.Context, x brig.ToolVariable) (*brig.ToolVariable, error) {
	path := toolSetups + "/" + escapeSegment(v1.LettaConfigID+x.Setup) + "/environment-variable"
	var out v1.LettaVariable
	if err := c.call(ctx, request{method: http.MethodPost, path: path}, v1.LettaVariableBody{Key: &x.Key, Value: &x.Value, Description: &x.Description}, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// ChangeToolVariable implements brig.Service.
func (c toolCalls) ChangeToolVariable(ctx context.Context, id string, change brig.ToolVariableChange) (*brig.ToolVariable, error) {
	var out v1.LettaVariable
	if err := c.call(ctx, request{method: http.MethodPatch, path: variablePath(id)}, v1.LettaVariableBody(change), &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

func variablePath(id string) string {
	return toolSetups + "/environment-variable/" + escapeSegment(v1.LettaVariableID+id)
}

// ToolVariables implements brig.Service.
func (c toolCalls) ToolVariables(ctx context.Context, setup string) ([]*brig.ToolVariable, error) {
	var list []v1.LettaVariable
	path := toolSetups + "/" + escapeSegment(v1.LettaConfigID+setup) + "/environment-variable"
	if err := c.call(ctx, request{method: http.MethodGet, path: path}, nil, &list); err != nil {
		return nil, err
	}
	var out []*brig.ToolVariable
	for _, x := range list {
		out = append(out, x.Domain())
	}
	return out, nil
}

// RemoveToolVariable implements brig.Service.
func (c toolCalls) RemoveToolVariable(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: variablePath(id)}, nil, nil)
}
