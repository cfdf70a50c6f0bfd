package mcp

import (
	"context"
	"slices"
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
	Volumes   []volumeIn        `json:"volumes,omitempty" jsonschema:"the tenant's volumes to mount: directories that several sandboxes share, and that stay afterwards"`
	Hosts     []string          `json:"allow_hosts,omitempty" jsonschema:"hosts that it may connect to, for example api.example.com or *.example.com; default none"`
	TTL       float64           `json:"ttl_seconds,omitempty" jsonschema:"how long it lives without being used; default 300"`
	MemoryMiB int               `json:"memory_mib,omitempty"`
	CPUs      float64           `json:"cpus,omitempty"`
	Pausable  bool              `json:"pausable,omitempty" jsonschema:"it can be paused and forked while commands and processes run in it"`

	PauseAtEnd bool `json:"pause_at_end,omitempty" jsonschema:"it is paused at the end of its life, and not ended"`
}

type volumeIn struct {
	Name     string `json:"name" jsonschema:"a volume by name or id"`
	Path     string `json:"path" jsonschema:"where to mount it, absolute, for example /data"`
	ReadOnly bool   `json:"read_only,omitempty" jsonschema:"the sandbox cannot change the volume"`
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
	State  string            `json:"state,omitempty" jsonschema:"only those in this state"`
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
	Origin  string            `json:"origin,omitempty" jsonschema:"the id of the sandbox of which it is a copy"`
	Saved   int64             `json:"saved_bytes,omitempty" jsonschema:"the disk space of a paused sandbox"`
}

type sandboxesOut struct {
	Sandboxes []sandboxOut `json:"sandboxes"`
	Next      string       `json:"next,omitempty"`
}

type doneOut struct {
	Done bool `json:"done"`
}

func (d *toolServer) createSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *createIn) (*sandboxOut, error) {
	ttl, err := parseSeconds("ttl_seconds", in.TTL)
	if err != nil {
		return nil, err
	}
	limits, err := toLimits(in.MemoryMiB, in.CPUs)
	if err != nil {
		return nil, err
	}
	spec := brig.Spec{
		Name: in.Name, Image: in.Image, Template: in.Template, Env: in.Env, Labels: in.Labels, TTL: ttl, Egress: toEgress(in.Hosts),
		Limits: limits, Workspace: brig.WorkspaceUse{Name: in.Workspace}, Pausable: in.Pausable, PauseAtEnd: in.PauseAtEnd,
	}
	for _, name := range in.Secrets {
		spec.Secrets = append(spec.Secrets, brig.SecretUse{Name: name})
	}
	for _, v := range in.Volumes {
		spec.Volumes = append(spec.Volumes, brig.VolumeMount{Name: v.Name, Path: v.Path, ReadOnly: v.ReadOnly})
	}
	return fromSandbox(d.service.Create(ctx, spec))
}

// toLimits returns the limits of a sandbox, without those that are zero.
func toLimits(memoryMiB int, cpus float64) (brig.Limits, error) {
	const maximum = 1 << 30 // in MiB; the Service also checks its own limit
	if memoryMiB < 0 || memoryMiB > maximum {
		return brig.Limits{}, brig.InvalidField("memory_mib", "%d is out of bounds", memoryMiB)
	}
	return brig.Limits{Memory: int64(memoryMiB) * brig.MiB, CPUs: cpus}, nil
}

func (d *toolServer) getSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*sandboxOut, error) {
	return fromSandbox(d.service.Get(ctx, in.Sandbox))
}

func (d *toolServer) extendSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *extendIn) (*sandboxOut, error) {
	ttl, err := parseSeconds("ttl_seconds", in.TTL)
	if err != nil {
		return nil, err
	}
	return fromSandbox(d.service.Extend(ctx, in.Sandbox, ttl))
}

func (d *toolServer) removeSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*doneOut, error) {
	return doneResult(d.service.Remove(ctx, in.Sandbox))
}

func (d *toolServer) listSandboxes(ctx context.Context, _ *mcp.CallToolRequest, in *listIn) (*sandboxesOut, error) {
	o := brig.ListOptions{Labels: in.Labels, Limit: in.Limit, Cursor: in.Cursor}
	switch {
	case in.State != "" && in.Ended:
		return nil, brig.InvalidField("ended", "there is a state as well").WithHint("give state or ended")
	case in.State != "":
		if !slices.Contains(brig.States, brig.State(in.State)) {
			return nil, brig.InvalidField("state", "%q is not a state", brig.Clip(in.State, 40)).WithHint("use one of: %s", joinStates())
		}
		o.States = []brig.State{brig.State(in.State)}
	case !in.Ended:
		o.States = []brig.State{brig.Creating, brig.Running, brig.Paused}
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

// doneResult returns the result of a tool without other output.
func doneResult(err error) (*doneOut, error) {
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
		Created: formatTime(s.Created), Expires: formatTime(s.Expires), Origin: string(s.Origin),
	}
	if s.Pause != nil {
		out.Saved = s.Pause.Bytes
	}
	if s.Exit != nil {
		out.Ended = string(s.Exit.Reason)
	}
	return out, nil
}

// formatTime formats a time. It returns an empty string for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
