package client

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// The one form of tools on the wire is Letta's.
const toolSetups = "/v1/sandbox-config"

// RunTool implements brig.Service.
func (c *Client) RunTool(ctx context.Context, t brig.Tool) (*brig.ToolResult, error) {
	in := wire.LettaRun{
		Source: t.Source, Arguments: t.Arguments, Schema: t.Schema, Env: t.Env, State: t.State,
		Python: packages(t.Python, "=="), Node: packages(t.Node, "@"), Limit: t.Limit, TimeoutMS: t.Timeout.Milliseconds(),
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
	var out wire.LettaReturn
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/tools/run"}, in, &out); err != nil {
		return nil, err
	}
	return toolResult(out), nil
}

func toolResult(r wire.LettaReturn) *brig.ToolResult {
	return &brig.ToolResult{
		Value: some(r.Value), Text: r.ToolReturn, State: some(r.State), Error: r.Error,
		Stdout: said(r.Stdout), Stderr: said(r.Stderr), Fingerprint: r.Fingerprint, Sandbox: r.Sandbox, Reused: r.Reused,
		ExitCode: r.ExitCode, TimedOut: r.TimedOut, Duration: time.Duration(r.DurationMS) * time.Millisecond,
	}
}

// said is an output, of which nothing tells any more that a part was left out.
func said(list []string) brig.Output {
	text := strings.Join(list, "")
	return brig.Output{Head: []byte(text), Total: int64(len(text))}
}

// some is a value that is there.
func some(raw []byte) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// packages are requirements in the form of names and versions.
func packages(list []string, with string) (out []wire.LettaPackage) {
	for _, r := range list {
		p := wire.LettaPackage{Name: r}
		if i := strings.LastIndex(r, with); i > 0 {
			version := r[i+len(with):]
			p.Name, p.Version = r[:i], &version
		}
		out = append(out, p)
	}
	return out
}

// PutToolSetup implements brig.Service.
func (c *Client) PutToolSetup(ctx context.Context, s brig.ToolSetup) (*brig.ToolSetup, error) {
	rq := request{method: http.MethodPost, path: toolSetups + "/"}
	if s.ID != "" {
		rq.method, rq.path = http.MethodPatch, toolSetups+"/"+segment(wire.LettaConfigID+s.ID)
	}
	var out wire.LettaConfig
	if err := c.call(ctx, rq, wire.LettaConfigBody{Config: s.Config, Type: string(s.Kind)}, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// RenewToolSetup implements brig.Service.
func (c *Client) RenewToolSetup(ctx context.Context, kind brig.ToolKind) (*brig.ToolSetup, error) {
	if kind != brig.ToolLocal {
		return nil, brig.Errorf(brig.Unimplemented, "a server renews setups of the kind local alone").WithHint("give the setup another configuration")
	}
	var out wire.LettaConfig
	if err := c.call(ctx, request{method: http.MethodPost, path: toolSetups + "/local/recreate-venv"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// ToolSetups implements brig.Service.
func (c *Client) ToolSetups(ctx context.Context) ([]*brig.ToolSetup, error) {
	var list []wire.LettaConfig
	if err := c.call(ctx, request{method: http.MethodGet, path: toolSetups + "/"}, nil, &list); err != nil {
		return nil, err
	}
	var out []*brig.ToolSetup
	for _, s := range list {
		out = append(out, s.Noun())
	}
	return out, nil
}

// RemoveToolSetup implements brig.Service.
func (c *Client) RemoveToolSetup(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: toolSetups + "/" + segment(wire.LettaConfigID+id)}, nil, nil)
}

// PutToolVariable implements brig.Service.
func (c *Client) PutToolVariable(ctx context.Context, x brig.ToolVariable) (*brig.ToolVariable, error) {
	path := toolSetups + "/" + segment(wire.LettaConfigID+x.Setup) + "/environment-variable"
	var out wire.LettaVariable
	if err := c.call(ctx, request{method: http.MethodPost, path: path}, wire.LettaVariableBody{Key: &x.Key, Value: &x.Value, Description: &x.Description}, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// ChangeToolVariable implements brig.Service.
func (c *Client) ChangeToolVariable(ctx context.Context, id string, change brig.ToolVariableChange) (*brig.ToolVariable, error) {
	var out wire.LettaVariable
	if err := c.call(ctx, request{method: http.MethodPatch, path: variablePath(id)}, wire.LettaVariableBody(change), &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

func variablePath(id string) string {
	return toolSetups + "/environment-variable/" + segment(wire.LettaVariableID+id)
}

// ToolVariables implements brig.Service.
func (c *Client) ToolVariables(ctx context.Context, setup string) ([]*brig.ToolVariable, error) {
	var list []wire.LettaVariable
	path := toolSetups + "/" + segment(wire.LettaConfigID+setup) + "/environment-variable"
	if err := c.call(ctx, request{method: http.MethodGet, path: path}, nil, &list); err != nil {
		return nil, err
	}
	var out []*brig.ToolVariable
	for _, x := range list {
		out = append(out, x.Noun())
	}
	return out, nil
}

// RemoveToolVariable implements brig.Service.
func (c *Client) RemoveToolVariable(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: variablePath(id)}, nil, nil)
}
