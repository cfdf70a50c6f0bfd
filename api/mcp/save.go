package mcp

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type forkIn struct {
	Sandbox string            `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Count   int               `json:"count,omitempty" jsonschema:"the number of copies, 1 to 32; default 1"`
	Name    string            `json:"name,omitempty" jsonschema:"the name of the copy, if there is one; default one that begins with the original's"`
	Paused  bool              `json:"paused,omitempty" jsonschema:"make one copy that stays paused, as a snapshot that can be forked any number of times"`
	Labels  map[string]string `json:"labels,omitempty" jsonschema:"the labels of each copy; default those of the original"`
	TTL     float64           `json:"ttl_seconds,omitempty" jsonschema:"how long each copy lives without being used; default that of the original"`

	Env        map[string]string `json:"env,omitempty" jsonschema:"variables for new commands, in addition to those of the original"`
	Hosts      []string          `json:"allow_hosts,omitempty" jsonschema:"hosts that each copy may connect to, in the stead of those of the original; an empty list allows none"`
	User       string            `json:"user,omitempty" jsonschema:"the user of commands; default that of the original"`
	Dir        string            `json:"dir,omitempty" jsonschema:"the working directory of commands; default that of the original"`
	PauseAtEnd *bool             `json:"pause_at_end,omitempty" jsonschema:"whether each copy is paused at the end of its life, and not ended; default as the original"`
	MemoryMiB  int               `json:"memory_mib,omitempty" jsonschema:"only if the original is paused with files_only"`
	CPUs       float64           `json:"cpus,omitempty" jsonschema:"only if the original is paused with files_only"`
}

type copiesOut struct {
	Copies []sandboxOut `json:"copies"`
}

type pauseIn struct {
	Sandbox   string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	FilesOnly bool   `json:"files_only,omitempty" jsonschema:"save only the files, without /tmp: variables, programs and processes end, and the next use boots the sandbox again"`
}

func (d *toolServer) pauseSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *pauseIn) (*sandboxOut, error) {
	return fromSandbox(d.service.Pause(ctx, in.Sandbox, brig.PauseOptions{FilesOnly: in.FilesOnly}))
}

func (d *toolServer) resumeSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*sandboxOut, error) {
	return fromSandbox(d.service.Resume(ctx, in.Sandbox))
}

func (d *toolServer) forkSandbox(ctx context.Context, _ *mcp.CallToolRequest, in *forkIn) (*copiesOut, error) {
	ttl, err := parseSeconds("ttl_seconds", in.TTL)
	if err != nil {
		return nil, err
	}
	limits, err := toLimits(in.MemoryMiB, in.CPUs)
	if err != nil {
		return nil, err
	}
	spec := brig.ForkSpec{
		Name: in.Name, Paused: in.Paused, Count: in.Count, Labels: in.Labels, TTL: ttl,
		Env: in.Env, User: in.User, Dir: in.Dir, Limits: limits,
	}
	if in.Hosts != nil {
		egress := toEgress(in.Hosts)
		spec.Egress = &egress
	}
	if in.PauseAtEnd != nil {
		spec.AtEnd = &brig.AtEnd{Pause: *in.PauseAtEnd}
	}
	copies, err := d.service.Fork(ctx, in.Sandbox, spec)
	if err != nil {
		return nil, err
	}
	out := &copiesOut{Copies: []sandboxOut{}}
	for _, s := range copies {
		one, _ := fromSandbox(s, nil)
		out.Copies = append(out.Copies, *one)
	}
	return out, nil
}

// stateChoices returns the states of sandboxes as the values of an argument.
func stateChoices() (all []any) {
	for _, s := range brig.States {
		all = append(all, string(s))
	}
	return all
}

// joinStates returns the states of sandboxes for an error message.
func joinStates() string {
	names := make([]string, len(brig.States))
	for i, s := range brig.States {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
