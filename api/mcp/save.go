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
	copies, err := d.service.Fork(ctx, in.Sandbox, brig.ForkSpec{Name: in.Name, Paused: in.Paused, Count: in.Count, Labels: in.Labels, TTL: ttl})
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
