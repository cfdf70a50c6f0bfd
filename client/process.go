package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// processes is brig.Processes of one sandbox.
type processes struct {
	c    *Client
	name string
}

// Processes implements brig.Service.
func (c *Client) Processes(name string) brig.Processes { return processes{c, name} }

// path is that of something about one process.
func (p processes) path(pid int, what string) string {
	return sandboxPath(p.name, "processes", strconv.Itoa(pid), what)
}

// Start implements brig.Processes.
func (p processes) Start(ctx context.Context, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	var check checker
	if check.err = checkCommand(spec.Command); check.err == nil {
		check.text("tag", spec.Tag)
	}
	if check.err != nil {
		return nil, check.err
	}
	var out wire.Process
	rq := request{method: http.MethodPost, path: sandboxPath(p.name, "processes")}
	if err := p.c.call(ctx, rq, fromProcess(spec), &out); err != nil {
		return nil, err
	}
	return toProcess(out), nil
}

// List implements brig.Processes.
func (p processes) List(ctx context.Context) ([]*brig.ProcessInfo, error) {
	var out wire.Processes
	if err := p.c.call(ctx, request{method: http.MethodGet, path: sandboxPath(p.name, "processes")}, nil, &out); err != nil {
		return nil, err
	}
	list := make([]*brig.ProcessInfo, 0, len(out.Processes))
	for _, x := range out.Processes {
		list = append(list, toProcess(x))
	}
	return list, nil
}

// Attach implements brig.Processes.
func (p processes) Attach(ctx context.Context, pid int, from int64, on func(brig.ProcessEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := p.c.send(ctx, request{
		method: http.MethodGet, path: p.path(pid, "output"), accept: wire.NDJSON,
		query: url.Values{"offset": {strconv.FormatInt(max(from, -1), 10)}},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var out wire.Result
	err = p.c.events(ctx, resp.Body, &out, func(event string, line []byte) error {
		e := brig.ProcessEvent{From: brig.FromStdout}
		switch event {
		case wire.EventStdout:
		case wire.EventStderr:
			e.From = brig.FromStderr
		default:
			return nil
		}
		var chunk wire.Chunk
		if err := json.Unmarshal(line, &chunk); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		if e.Output = chunk.DataB64; e.Output == nil {
			e.Output = []byte(chunk.Data)
		}
		if chunk.Offset != nil {
			e.Offset = *chunk.Offset
		}
		return on(e)
	})
	if err != nil {
		return err
	}
	return on(brig.ProcessEvent{End: toResult(out)})
}

// Input implements brig.Processes.
func (p processes) Input(ctx context.Context, pid int, data []byte) error {
	resp, err := p.c.send(ctx, request{
		method: http.MethodPost, path: p.path(pid, "input"), body: bytes.NewReader(data), contentType: wire.Octets,
	})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// CloseInput implements brig.Processes.
func (p processes) CloseInput(ctx context.Context, pid int) error {
	return p.c.call(ctx, request{method: http.MethodPost, path: p.path(pid, "close_input")}, nil, nil)
}

// Signal implements brig.Processes.
func (p processes) Signal(ctx context.Context, pid int, name string) error {
	var check checker
	if check.text("signal", name); check.err != nil {
		return check.err
	}
	return p.c.call(ctx, request{method: http.MethodPost, path: p.path(pid, "signal")}, wire.SignalRequest{Signal: name}, nil)
}

// Resize implements brig.Processes.
func (p processes) Resize(ctx context.Context, pid int, size brig.Terminal) error {
	in := wire.Terminal{Columns: int(size.Columns), Rows: int(size.Rows)}
	return p.c.call(ctx, request{method: http.MethodPost, path: p.path(pid, "resize")}, in, nil)
}

func fromProcess(s brig.ProcessSpec) wire.ProcessRequest {
	c := s.Command
	out := wire.ProcessRequest{
		Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User, TimeoutMS: millis(c.Timeout),
		NoInput: s.NoInput, Tag: s.Tag,
	}
	if t := s.Terminal; t != nil {
		out.Terminal = &wire.Terminal{Columns: int(t.Columns), Rows: int(t.Rows)}
	}
	return out
}

func toProcess(x wire.Process) *brig.ProcessInfo {
	out := &brig.ProcessInfo{
		PID: x.PID, Started: x.Started, Written: x.Written,
		Spec: brig.ProcessSpec{
			Command: brig.Command{Argv: x.Command, Shell: x.Shell, Env: x.Env, Dir: x.Cwd, User: x.User, Timeout: duration(x.TimeoutMS)},
			NoInput: x.NoInput, Tag: x.Tag,
		},
	}
	if t := x.Terminal; t != nil {
		out.Spec.Terminal = &brig.Terminal{Columns: uint16(t.Columns), Rows: uint16(t.Rows)}
	}
	if x.Result != nil {
		out.Result = toResult(*x.Result)
	}
	return out
}
