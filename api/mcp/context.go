package mcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type createContextIn struct {
	Sandbox  string            `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Language string            `json:"language,omitempty" jsonschema:"python (the default), javascript, typescript, bash, or the name of a Jupyter kernel that its image has"`
	Dir      string            `json:"dir,omitempty" jsonschema:"its working directory; default /workspace"`
	Env      map[string]string `json:"env,omitempty"`
}

type contextIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Context string `json:"context" jsonschema:"a context by id"`
}

type contextOut struct {
	Context  string `json:"context" jsonschema:"its id"`
	Language string `json:"language"`
	State    string `json:"state"`
	Runs     int    `json:"runs" jsonschema:"how much code it has run since it was started"`
}

type contextsOut struct {
	Contexts []contextOut `json:"contexts"`
}

func (d *toolServer) createContext(ctx context.Context, _ *mcp.CallToolRequest, in *createContextIn) (*contextOut, error) {
	spec := brig.ContextSpec{Dir: in.Dir, Env: in.Env}
	if in.Language != "" {
		var err error
		if spec.Language, err = brig.ParseContextLanguage(in.Language); err != nil {
			return nil, err
		}
	}
	return fromContext(d.service.CreateContext(ctx, in.Sandbox, spec))
}

func (d *toolServer) listContexts(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*contextsOut, error) {
	list, err := d.service.Contexts(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	out := &contextsOut{Contexts: []contextOut{}}
	for _, c := range list {
		one, _ := fromContext(c, nil)
		out.Contexts = append(out.Contexts, *one)
	}
	return out, nil
}

func (d *toolServer) interruptContext(ctx context.Context, _ *mcp.CallToolRequest, in *contextIn) (*doneOut, error) {
	return doneResult(d.service.InterruptContext(ctx, in.Sandbox, in.Context))
}

func (d *toolServer) restartContext(ctx context.Context, _ *mcp.CallToolRequest, in *contextIn) (*contextOut, error) {
	return fromContext(d.service.RestartContext(ctx, in.Sandbox, in.Context))
}

func (d *toolServer) removeContext(ctx context.Context, _ *mcp.CallToolRequest, in *contextIn) (*doneOut, error) {
	return doneResult(d.service.RemoveContext(ctx, in.Sandbox, in.Context))
}

func fromContext(c *brig.CodeContext, err error) (*contextOut, error) {
	if err != nil {
		return nil, err
	}
	return &contextOut{Context: c.ID, Language: string(c.Spec.Language), State: string(c.State), Runs: c.Count}, nil
}
