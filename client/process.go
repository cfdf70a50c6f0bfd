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
	"github.com/brig-run/brig/api/v1"
)

// processCalls are the calls for processes.
type processCalls struct{ *conn }

// processes implements brig.Processes for one sandbox.
type processes struct {
	c    *conn
	name string
}

// Processes implements brig.Service.
func (c processCalls) Processes(name string) brig.Processes { return processes{c.conn, name} }

// path returns the URL path of an operation on one process.
func (p processes) path(pid int, what string) string {
	return sandboxPath(p.name, "processes", strconv.Itoa(pid), what)
}

// Start implements brig.Processes.
func (p processes) Start(ctx context.Context, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	var check checker
	if check.err = checkCommand(spec.Command); check.err == nil {
		check.checkText("tag", spec.Tag)
	}
	if check.err != nil {
		return nil, check.err
	}
	var out v1.Process
	rq := request{method: http.MethodPost, path: sandboxPath(p.name, "processes")}
	if err := p.c.call(ctx, rq, v1.FromProcessSpec(spec), &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// List implements brig.Processes.
func (p processes) List(ctx context.Context) ([]*brig.ProcessInfo, error) {
	var out v1.Processes
	if err := p.c.call(ctx, request{method: http.MethodGet, path: sandboxPath(p.name, "processes")}, nil, &out); err != nil {
		return nil, err
	}
	list := make([]*brig.ProcessInfo, 0, len(out.Processes))
	for _, x := range out.Processes {
		list = append(list, x.Domain())
	}
	return list, nil
}

// Attach implements brig.Processes.
func (p processes) Attach(ctx context.Context, pid int, from int64, on func(brig.ProcessEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := p.c.send(ctx, request{
		method: http.MethodGet, path: p.path(pid, "output"), accept: v1.NDJSON,
		query: url.Values{"offset": {strconv.FormatInt(max(from, -1), 10)}},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var out v1.Result
	err = p.c.readEvents(ctx, resp.Body, &out, func(event string, line []byte) error {
		e := brig.ProcessEvent{From: brig.FromStdout}
		switch event {
		case v1.EventStdout:
		case v1.EventStderr:
			e.From = brig.FromStderr
		default:
			return nil
		}
		var chunk v1.Chunk
		if err := json.Unmarshal(line, &chunk); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		e.Output = chunk.Bytes()
		if chunk.Offset != nil {
			e.Offset = *chunk.Offset
		}
		return on(e)
	})
	if err != nil {
		return err
	}
	return on(brig.ProcessEvent{End: out.Domain()})
}

// WriteInput implements brig.Processes.
func (p processes) WriteInput(ctx context.Context, pid int, data []byte) error {
	resp, err := p.c.send(ctx, request{
		method: http.MethodPost, path: p.path(pid, "input"), body: bytes.NewReader(data), contentType: v1.Octets,
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
	if check.checkText("signal", name); check.err != nil {
		return check.err
	}
	return p.c.call(ctx, request{method: http.MethodPost, path: p.path(pid, "signal")}, v1.SignalRequest{Signal: name}, nil)
}

// Resize implements brig.Processes.
func (p processes) Resize(ctx context.Context, pid int, size brig.Terminal) error {
	in := v1.Terminal{Columns: int(size.Columns), Rows: int(size.Rows)}
	return p.c.call(ctx, request{method: http.MethodPost, path: p.path(pid, "resize")}, in, nil)
}
