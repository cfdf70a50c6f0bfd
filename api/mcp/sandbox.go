package mcp

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type createIn struct {
	Name      string            `json:"name,omitempty" jsonschema:"1 to 63 of a-z, 0-9 and -; default one that is made up"`
	Image     string            `json:"image,omitempty" jsonschema:"an image by name or digest; default host"`
	Template  string            `json:"template,omitempty" jsonschema:"a template by name, in the stead of an image"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"variables of every command's environment"`
	Labels    map[string]string `json:"labels,omitempty"`
	Secrets   []string          `json:"secrets,omitempty" jsonschema:"names of the tenant's secrets that it is given"`
	Workspace string            `json:"workspace,omitempty" jsonschema:"the name of a workspace to have a copy of at /workspace"`
	Hosts     []string          `json:"allow_hosts,omitempty" jsonschema:"hosts that it may connect to, for example api.example.com or *.example.com; default none"`
	TTL       float64           `json:"ttl_seconds,omitempty" jsonschema:"how long it lives without being used; default 300"`
	MemoryMiB int               `json:"memory_mib,omitempty"`
	CPUs      float64           `json:"cpus,omitempty"`
}

type sandboxIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
}

type extendIn struct {
	Sandbox string  `json:"sandbox" jsonschema:"a sandbox by name or id"`
	TTL     float64 `json:"ttl_seconds" jsonschema:"for how long from now on"`
}

type listIn struct {
	Labels map[string]string `json:"labels,omitempty" jsonschema:"only those with all of these"`
	Ended  bool              `json:"ended,omitempty" jsonschema:"also those that have ended"`
	Limit  int               `json:"limit,omitempty" jsonschema:"1 to 1000; default 100"`
	Cursor string            `json:"cursor,omitempty" jsonschema:"next of the page before"`
}

type sandboxOut struct {
	Name    string            `json:"name"`
	ID      string            `json:"id"`
	State   string            `json:"state"`
	Image   string            `json:"image"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created string            `json:"created"`
	Expires string            `json:"expires,omitempty" jsonschema:"when it ends unless it is used"`
	Ended   string            `json:"ended,omitempty" jsonschema:"why it ended"`
}

type sandboxesOut struct {
	Sandboxes []sandboxOut `json:"sandboxes"`
	Next      string       `json:"next,omitempty"`
}

type doneOut struct {
	Done bool `json:"done"`
}

func (d *desk) createSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *createIn) (*sandboxOut, error) {
	ttl, err := seconds("ttl_seconds", in.TTL)
	if err != nil {
		return nil, err
	}
	const most = 1 << 30 // MiB; the Service has bounds of its own
	if in.MemoryMiB < 0 || in.MemoryMiB > most {
		return nil, brig.InvalidField("memory_mib", "%d is out of bounds", in.MemoryMiB)
	}
	spec := brig.Spec{
		Name: in.Name, Image: in.Image, Template: in.Template, Env: in.Env, Labels: in.Labels, TTL: ttl, Egress: egress(in.Hosts),
		Limits:    brig.Limits{Memory: int64(in.MemoryMiB) * brig.MiB, CPUs: in.CPUs},
		Workspace: brig.WorkspaceUse{Name: in.Workspace},
	}
	for _, name := range in.Secrets {
		spec.Secrets = append(spec.Secrets, brig.SecretUse{Name: name})
	}
	return fromSandbox(d.service.Create(ctx, spec))
}

func (d *desk) getSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*sandboxOut, error) {
	return fromSandbox(d.service.Get(ctx, in.Sandbox))
}

func (d *desk) extendSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *extendIn) (*sandboxOut, error) {
	ttl, err := seconds("ttl_seconds", in.TTL)
	if err != nil {
		return nil, err
	}
	return fromSandbox(d.service.Extend(ctx, in.Sandbox, ttl))
}

func (d *desk) removeSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*doneOut, error) {
	return done(d.service.Remove(ctx, in.Sandbox))
}

func (d *desk) listSandboxes(ctx context.Context, _ *mcp.CallToolRequest, in *listIn) (*sandboxesOut, error) {
	o := brig.ListOptions{Labels: in.Labels, Limit: in.Limit, Cursor: in.Cursor}
	if !in.Ended {
		o.States = []brig.State{brig.Creating, brig.Running}
	}
	page, err := d.service.List(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &sandboxesOut{Sandboxes: []sandboxOut{}, Next: page.Next}
	for _, s := range page.Sandboxes {
		one, _ := fromSandbox(s, nil)
		out.Sandboxes = append(out.Sandboxes, *one)
	}
	return out, nil
}

// done is the answer of a tool that has nothing else to say.
func done(err error) (*doneOut, error) {
	if err != nil {
		return nil, err
	}
	return &doneOut{Done: true}, nil
}

func fromSandbox(s *brig.Sandbox, err error) (*sandboxOut, error) {
	if err != nil {
		return nil, err
	}
	out := &sandboxOut{
		Name: s.Spec.Name, ID: string(s.ID), State: string(s.State), Image: s.Spec.Image, Labels: s.Spec.Labels,
		Created: stamp(s.Created), Expires: stamp(s.Expires),
	}
	if s.Exit != nil {
		out.Ended = string(s.Exit.Reason)
	}
	return out, nil
}

// stamp is a moment as text, nothing for none.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
