package mcp

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type shellIn struct {
	Command string            `json:"command" jsonschema:"a script for the image's shell"`
	Sandbox string            `json:"sandbox,omitempty" jsonschema:"the sandbox to run it in; without one it runs in a fresh sandbox that is gone afterwards"`
	Dir     string            `json:"dir,omitempty" jsonschema:"in a sandbox: the working directory; default /workspace"`
	User    string            `json:"user,omitempty" jsonschema:"user (the default) or root"`
	Stdin   string            `json:"stdin,omitempty" jsonschema:"its standard input; default empty"`
	Image   string            `json:"image,omitempty" jsonschema:"in a fresh sandbox: its image"`
	Hosts   []string          `json:"allow_hosts,omitempty" jsonschema:"in a fresh sandbox: hosts that it may connect to, for example api.example.com or *.example.com"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"variables of the environment"`
	Timeout float64           `json:"timeout_seconds,omitempty" jsonschema:"wall time; default 30"`
}

type shellOut struct {
	runOutput
	Exec string `json:"exec,omitempty" jsonschema:"the id of the execution"`
}

// show implements presenter.
func (o *shellOut) show() []mcp.Content {
	var b strings.Builder
	o.describe(&b)
	return []mcp.Content{&mcp.TextContent{Text: b.String()}}
}

// freshShell runs a script with the same shell that runs commands in sandboxes.
const freshShell = `[ -x /bin/bash ] && exec /bin/bash -c "$0"; exec /bin/sh -c "$0"`

func (d *toolServer) runShell(ctx context.Context, req *mcp.CallToolRequest, in *shellIn) (*shellOut, error) {
	timeout, err := parseSeconds("timeout_seconds", in.Timeout)
	if err != nil {
		return nil, err
	}
	if in.Command == "" {
		return nil, brig.InvalidField("command", "is missing").WithHint("give a script, for example ls -l")
	}
	if in.Sandbox == "" {
		return d.runShellOnce(ctx, req, in, brig.Program{
			Command: []string{"/bin/sh", "-c", freshShell, in.Command}, Timeout: timeout,
			User: in.User, Image: in.Image, Env: in.Env, Egress: toEgress(in.Hosts),
		})
	}
	for field, given := range map[string]bool{"image": in.Image != "", "allow_hosts": in.Hosts != nil} {
		if given {
			return nil, brig.InvalidField(field, "it is for a fresh sandbox").WithHint("leave it out, or leave out sandbox")
		}
	}
	reporter, stop := reportProgress(ctx, req)
	defer stop()
	sio := brig.IO{Stdin: stdinReader(in.Stdin)}
	// A remote server omits streamed output from its result, so the output is
	// kept here.
	var out, errs headTailWriter
	if reporter != nil {
		sio.Stdout, sio.Stderr = progressWriter{&out, reporter}, progressWriter{&errs, reporter}
	}
	res, err := d.service.Exec(ctx, in.Sandbox, brig.Command{Shell: in.Command, Dir: in.Dir, User: in.User, Env: in.Env, Timeout: timeout}, sio)
	if err != nil {
		return nil, err
	}
	done := &shellOut{runOutput: fromResult(res), Exec: res.ExecID}
	done.Sandbox = in.Sandbox
	if reporter != nil {
		var cut [2]bool
		done.Stdout, cut[0] = out.text()
		done.Stderr, cut[1] = errs.text()
		done.Truncated = cut[0] || cut[1]
	}
	return done, nil
}

func (d *toolServer) runShellOnce(ctx context.Context, req *mcp.CallToolRequest, in *shellIn, p brig.Program) (*shellOut, error) {
	if in.Dir != "" {
		return nil, brig.InvalidField("dir", "it is for a sandbox that is there").WithHint("leave it out, and cd in the script")
	}
	reporter, stop := reportProgress(ctx, req)
	defer stop()
	sio := brig.IO{Stdin: stdinReader(in.Stdin)}
	if reporter != nil {
		sio.Stdout, sio.Stderr = reporter, reporter
	}
	o, err := d.service.Run(ctx, p, sio)
	if err != nil {
		return nil, err
	}
	out := &shellOut{runOutput: fromResult(&o.Result)}
	out.Sandbox = o.Sandbox
	return out, nil
}
