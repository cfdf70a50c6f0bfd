package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// CreateContext implements brig.Service.
func (c *Client) CreateContext(ctx context.Context, name string, spec brig.ContextSpec) (*brig.CodeContext, error) {
	in := wire.ContextRequest{Language: string(spec.Language), Cwd: spec.Dir, Env: spec.Env}
	return c.context(ctx, sandboxPath(name, "contexts"), in)
}

func (c *Client) context(ctx context.Context, path string, in any) (*brig.CodeContext, error) {
	var out wire.Context
	if err := c.call(ctx, request{method: http.MethodPost, path: path}, in, &out); err != nil {
		return nil, err
	}
	return toContext(out), nil
}

// Contexts implements brig.Service.
func (c *Client) Contexts(ctx context.Context, name string) ([]*brig.CodeContext, error) {
	var out wire.Contexts
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "contexts")}, nil, &out); err != nil {
		return nil, err
	}
	list := make([]*brig.CodeContext, 0, len(out.Contexts))
	for _, x := range out.Contexts {
		list = append(list, toContext(x))
	}
	return list, nil
}

// InterruptContext implements brig.Service.
func (c *Client) InterruptContext(ctx context.Context, name, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: sandboxPath(name, "contexts", id, "interrupt")}, nil, nil)
}

// RestartContext implements brig.Service.
func (c *Client) RestartContext(ctx context.Context, name, id string) (*brig.CodeContext, error) {
	return c.context(ctx, sandboxPath(name, "contexts", id, "restart"), nil)
}

// RemoveContext implements brig.Service.
func (c *Client) RemoveContext(ctx context.Context, name, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: sandboxPath(name, "contexts", id)}, nil, nil)
}

// RunCode implements brig.Service.
func (c *Client) RunCode(ctx context.Context, name string, code brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	var check checker
	check.text("code", code.Source)
	if check.err != nil {
		return nil, check.err
	}
	in := wire.CodeRequest{
		Code: code.Source, Context: code.Context, Language: string(code.Language), Env: code.Env,
		TimeoutMS: millis(code.Timeout), Stream: on != nil,
	}
	path := sandboxPath(name, "code")
	var out wire.CodeAnswer
	if on == nil {
		if err := c.call(ctx, request{method: http.MethodPost, path: path}, in, &out); err != nil {
			return nil, err
		}
		return toCodeResult(out), nil
	}
	// Whatever ends this ends the request, which interrupts the code.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := encode(in)
	if err != nil {
		return nil, err
	}
	body, stop := input(first, nil)
	defer stop()
	resp, err := c.send(ctx, request{method: http.MethodPost, path: path, body: body, contentType: wire.JSON, accept: wire.NDJSON})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	err = c.events(ctx, resp.Body, &out, func(event string, line []byte) error { return codeEvent(event, line, on) })
	if err != nil {
		return nil, err
	}
	return toCodeResult(out), nil
}

// codeEvent reads one event and passes it on. Those that are not about code,
// or that only a newer server sends, it leaves out.
func codeEvent(event string, line []byte, on func(brig.CodeEvent) error) error {
	var (
		chunk     wire.Chunk
		started   wire.CodeStarted
		rich      wire.Rich
		exception wire.Exception
	)
	into := map[string]any{
		wire.EventStdout: &chunk, wire.EventStderr: &chunk, wire.EventCodeStarted: &started,
		wire.EventOutput: &rich, wire.EventException: &exception,
	}[event]
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	data := chunk.DataB64
	if data == nil {
		data = []byte(chunk.Data)
	}
	switch event {
	case wire.EventStdout:
		return on(brig.CodeEvent{Stdout: data})
	case wire.EventStderr:
		return on(brig.CodeEvent{Stderr: data})
	case wire.EventCodeStarted:
		return on(brig.CodeEvent{Started: &brig.CodeResult{Context: started.Context, Count: started.Count}})
	case wire.EventOutput:
		return on(brig.CodeEvent{Output: &brig.Rich{Data: rich.Data, Main: rich.Main}})
	default:
		e := brig.CodeError(exception)
		return on(brig.CodeEvent{Error: &e})
	}
}

// Pool implements brig.Service.
func (c *Client) Pool(ctx context.Context) ([]brig.PoolShelf, error) {
	var in wire.Pool
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/pool"}, nil, &in); err != nil {
		return nil, err
	}
	var out []brig.PoolShelf
	for _, s := range in.Shelves {
		out = append(out, brig.PoolShelf{
			Provider: s.Provider, Image: s.Image, Language: brig.Language(s.Language), Limits: toLimits(s.Limits),
			Target: s.Target, Ready: s.Ready, Making: s.Making, Hits: s.Hits, Misses: s.Misses, Failed: s.Failed,
			Refill: wire.FromMillis(s.RefillMS),
		})
	}
	return out, nil
}

func toContext(x wire.Context) *brig.CodeContext {
	return &brig.CodeContext{
		ID: x.ID, Sandbox: brig.ID(x.Sandbox),
		Spec:  brig.ContextSpec{Language: brig.Language(x.Language), Dir: x.Cwd, Env: x.Env},
		State: brig.ContextState(x.State), Flavor: x.Flavor, Version: x.Version, Count: x.Count, Created: x.Created,
	}
}

func toCodeResult(a wire.CodeAnswer) *brig.CodeResult {
	r := &brig.CodeResult{
		Context: a.Context, Count: a.Count,
		Stdout:   toOutput(a.Stdout, a.StdoutB64, a.StdoutCut, a.StdoutBytes),
		Stderr:   toOutput(a.Stderr, a.StderrB64, a.StderrCut, a.StderrBytes),
		TimedOut: a.TimedOut, Interrupted: a.Interrupted, Lost: a.Lost,
		Started: a.Started, Duration: wire.FromMillis(a.DurationMS), Queued: wire.FromMillis(a.QueuedMS),
	}
	r.Outputs = toRich(a.Results)
	if a.Error != nil {
		e := brig.CodeError(*a.Error)
		r.Error = &e
	}
	return r
}

// toRich is values in several forms.
func toRich(values []wire.Rich) (out []brig.Rich) {
	for _, v := range values {
		out = append(out, brig.Rich{Data: v.Data, Main: v.Main})
	}
	return out
}
