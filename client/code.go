package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// codeCalls are the calls for interpreters.
type codeCalls struct{ *conn }

// CreateContext implements brig.Service.
func (c codeCalls) CreateContext(ctx context.Context, name string, spec brig.ContextSpec) (*brig.CodeContext, error) {
	in := v1.ContextRequest{Language: string(spec.Language), Cwd: spec.Dir, Env: spec.Env}
	return c.sendContext(ctx, sandboxPath(name, "contexts"), in)
}

func (c codeCalls) sendContext(ctx context.Context, path string, in any) (*brig.CodeContext, error) {
	var out v1.Context
	if err := c.call(ctx, request{method: http.MethodPost, path: path}, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Contexts implements brig.Service.
func (c codeCalls) Contexts(ctx context.Context, name string) ([]*brig.CodeContext, error) {
	var out v1.Contexts
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "contexts")}, nil, &out); err != nil {
		return nil, err
	}
	list := make([]*brig.CodeContext, 0, len(out.Contexts))
	for _, x := range out.Contexts {
		list = append(list, x.Domain())
	}
	return list, nil
}

// InterruptContext implements brig.Service.
func (c codeCalls) InterruptContext(ctx context.Context, name, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: sandboxPath(name, "contexts", id, "interrupt")}, nil, nil)
}

// RestartContext implements brig.Service.
func (c codeCalls) RestartContext(ctx context.Context, name, id string) (*brig.CodeContext, error) {
	return c.sendContext(ctx, sandboxPath(name, "contexts", id, "restart"), nil)
}

// RemoveContext implements brig.Service.
func (c codeCalls) RemoveContext(ctx context.Context, name, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: sandboxPath(name, "contexts", id)}, nil, nil)
}

// RunCode implements brig.Service.
func (c codeCalls) RunCode(ctx context.Context, name string, code brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	var check checker
	check.checkText("code", code.Source)
	if check.err != nil {
		return nil, check.err
	}
	in := v1.CodeRequest{
		Code: code.Source, Context: code.Context, Language: string(code.Language), Env: code.Env,
		Uncounted: code.Uncounted, TimeoutMS: v1.FromDuration(code.Timeout), Stream: on != nil,
	}
	path := sandboxPath(name, "code")
	var out v1.CodeAnswer
	if on == nil {
		if err := c.call(ctx, request{method: http.MethodPost, path: path}, in, &out); err != nil {
			return nil, err
		}
		return out.Domain(), nil
	}
	// Returning from this function cancels the request, which interrupts the
	// code.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := encode(in)
	if err != nil {
		return nil, err
	}
	body, stop := newInput(first, nil)
	defer stop()
	resp, err := c.send(ctx, request{method: http.MethodPost, path: path, body: body, contentType: v1.JSON, accept: v1.NDJSON})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	err = c.readEvents(ctx, resp.Body, &out, func(event string, line []byte) error { return handleCodeEvent(event, line, on) })
	if err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// handleCodeEvent decodes one event and passes it to on. It ignores events that do not concern code, and
// unknown events from newer servers.
func handleCodeEvent(event string, line []byte, on func(brig.CodeEvent) error) error {
	var (
		chunk     v1.Chunk
		started   v1.CodeStarted
		rich      v1.Rich
		exception v1.Exception
	)
	into := map[string]any{
		v1.EventStdout: &chunk, v1.EventStderr: &chunk, v1.EventCodeStarted: &started,
		v1.EventOutput: &rich, v1.EventException: &exception,
	}[event]
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	switch event {
	case v1.EventStdout:
		return on(brig.CodeEvent{Stdout: chunk.Bytes()})
	case v1.EventStderr:
		return on(brig.CodeEvent{Stderr: chunk.Bytes()})
	case v1.EventCodeStarted:
		return on(brig.CodeEvent{Started: &brig.CodeResult{Context: started.Context, Count: started.Count}})
	case v1.EventOutput:
		value := rich.Domain()
		return on(brig.CodeEvent{Output: &value})
	default:
		e := brig.CodeError(exception)
		return on(brig.CodeEvent{Error: &e})
	}
}

// Pool implements brig.Service.
func (c codeCalls) Pool(ctx context.Context) ([]brig.PoolClass, error) {
	var in v1.Pool
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/pool"}, nil, &in); err != nil {
		return nil, err
	}
	return in.Domain(), nil
}
