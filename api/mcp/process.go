package mcp

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type startIn struct {
	Sandbox string            `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Command string            `json:"command" jsonschema:"a script for the image's shell"`
	Dir     string            `json:"dir,omitempty" jsonschema:"the working directory; default /workspace"`
	User    string            `json:"user,omitempty" jsonschema:"user (the default) or root"`
	Env     map[string]string `json:"env,omitempty"`
	Tag     string            `json:"tag,omitempty" jsonschema:"a name of your own for it"`
}

type signalIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	PID     int    `json:"pid"`
	Signal  string `json:"signal,omitempty" jsonschema:"default SIGTERM; SIGKILL ends everything that it started, too"`
}

type outputIn struct {
	Sandbox string  `json:"sandbox" jsonschema:"a sandbox by name or id"`
	PID     int     `json:"pid"`
	Offset  int64   `json:"offset,omitempty" jsonschema:"next of the call before"`
	Wait    float64 `json:"wait_seconds,omitempty" jsonschema:"how long to wait for more, or for its end; default 1, at most 60"`
}

type processOut struct {
	PID      int    `json:"pid"`
	Command  string `json:"command"`
	Tag      string `json:"tag,omitempty"`
	Started  string `json:"started"`
	Running  bool   `json:"running"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

type processesOut struct {
	Processes []processOut `json:"processes"`
}

type outputOut struct {
	Output   string `json:"output" jsonschema:"what it wrote to stdout and stderr"`
	Next     int64  `json:"next" jsonschema:"the offset for the next call"`
	Running  bool   `json:"running"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

// show implements presenter.
func (o *outputOut) show() []mcp.Content {
	return []mcp.Content{&mcp.TextContent{Text: o.Output}, &mcp.TextContent{Text: o.stateText()}}
}

func (o *outputOut) stateText() string {
	if o.Running {
		return "[it runs]"
	}
	return "[it has ended]"
}

func (d *toolServer) startProcess(ctx context.Context, _ *mcp.CallToolRequest, in *startIn) (*processOut, error) {
	if in.Command == "" {
		return nil, brig.InvalidField("command", "is missing").WithHint("give a script, for example python3 -m http.server")
	}
	info, err := d.service.Processes(in.Sandbox).Start(ctx, brig.ProcessSpec{
		Command: brig.Command{Shell: in.Command, Dir: in.Dir, User: in.User, Env: in.Env}, NoInput: true, Tag: in.Tag,
	})
	if err != nil {
		return nil, err
	}
	out := fromProcess(info)
	return &out, nil
}

func (d *toolServer) listProcesses(ctx context.Context, _ *mcp.CallToolRequest, in *sandboxIn) (*processesOut, error) {
	list, err := d.service.Processes(in.Sandbox).List(ctx)
	if err != nil {
		return nil, err
	}
	out := &processesOut{Processes: []processOut{}}
	for _, p := range list {
		out.Processes = append(out.Processes, fromProcess(p))
	}
	return out, nil
}

func (d *toolServer) signalProcess(ctx context.Context, _ *mcp.CallToolRequest, in *signalIn) (*doneOut, error) {
	if in.Signal == "" {
		in.Signal = "SIGTERM"
	}
	return doneResult(d.service.Processes(in.Sandbox).Signal(ctx, in.PID, in.Signal))
}

// errLimitReached ends an attachment when it has received the requested output
// or the wait has ended.
var errLimitReached error = brig.Errorf(brig.Canceled, "that is enough")

// readProcessOutput returns the output of a process. It waits a limited time for
// more output.
func (d *toolServer) readProcessOutput(ctx context.Context, _ *mcp.CallToolRequest, in *outputIn) (*outputOut, error) {
	const maximum = 60
	switch {
	case in.Offset < 0:
		return nil, brig.InvalidField("offset", "%d is out of bounds", in.Offset).WithHint("give next of the call before, or leave it out")
	case in.Wait < 0 || in.Wait > maximum:
		return nil, brig.InvalidField("wait_seconds", "%g is out of bounds", in.Wait).WithHint("give up to %d", maximum)
	case in.Wait == 0:
		in.Wait = 1
	}
	// Only the wait ends after that time, not the call.
	waiting, cancel := context.WithTimeoutCause(ctx, time.Duration(in.Wait*float64(time.Second)), errLimitReached)
	defer cancel()
	out := &outputOut{Next: in.Offset, Running: true}
	var text []byte
	err := d.service.Processes(in.Sandbox).Attach(waiting, in.PID, in.Offset, func(e brig.ProcessEvent) error {
		if e.End != nil {
			out.Running, out.ExitCode = false, &e.End.ExitCode
			return nil
		}
		part := e.Output
		if room := maxText - len(text); len(part) > room {
			part = part[:room]
		}
		text = append(text, part...)
		out.Next = e.Offset + int64(len(part))
		if len(text) >= maxText {
			return errLimitReached
		}
		return nil
	})
	if err != nil && !errors.Is(err, errLimitReached) && (ctx.Err() != nil || !errors.Is(context.Cause(waiting), errLimitReached)) {
		return nil, err
	}
	out.Output = toValidUTF8(text)
	return out, nil
}

func fromProcess(p *brig.ProcessInfo) processOut {
	out := processOut{PID: p.PID, Command: p.Spec.Command.Shell, Tag: p.Spec.Tag, Started: formatTime(p.Started), Running: p.Result == nil}
	if len(p.Spec.Command.Argv) > 0 {
		out.Command = p.Spec.Command.Argv[0]
	}
	if p.Result != nil {
		out.ExitCode = &p.Result.ExitCode
	}
	return out
}
