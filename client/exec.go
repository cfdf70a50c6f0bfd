package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// execCalls are the calls for commands and one-shot runs.
type execCalls struct{ *conn }

// Exec implements brig.Service.
func (c execCalls) Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	in, path := v1.FromCommand(cmd), sandboxPath(name, "exec")
	in.Stream, in.Streams = streamsOf(sio)
	var out v1.Result
	if err := c.execute(ctx, path, in, in.Stream, sio, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Run implements brig.Service.
func (c execCalls) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	if err := checkProgram(p); err != nil {
		return nil, err
	}
	in := v1.FromProgram(p)
	sio.Result = nil // the result of a program is in the outcome
	in.Stream, in.Streams = streamsOf(sio)
	var out v1.RunAnswer
	if err := c.execute(ctx, "/v1/run", in, in.Stream, sio, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Runs implements brig.Service.
func (c execCalls) Runs(ctx context.Context, o brig.RunOptions) (*brig.RunPage, error) {
	q := pageQuery(o.Limit, o.Cursor)
	for _, s := range o.Statuses {
		q.Add("status", string(s))
	}
	var out v1.Runs
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/runs", query: q}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// GetRun implements brig.Service.
func (c execCalls) GetRun(ctx context.Context, name string) (*brig.Outcome, error) {
	var out v1.RunAnswer
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/runs/" + escapeSegment(name)}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// streamsOf reports whether sio needs a stream of events, and returns the names of its streams. A
// stream without a writer is captured in the result instead.
func streamsOf(sio brig.IO) (bool, []string) {
	streams := []string{}
	for name, w := range outputWriters(sio) {
		if w != nil {
			streams = append(streams, name)
		}
	}
	slices.Sort(streams)
	if len(streams) == 0 && sio.Stdin == nil && sio.Started == nil {
		return false, nil
	}
	return true, streams
}

func outputWriters(sio brig.IO) map[string]io.Writer {
	return map[string]io.Writer{
		v1.EventStdout: sio.Stdout, v1.EventStderr: sio.Stderr, v1.EventDescriptor3: sio.Result,
	}
}

// execute sends a request to run a program, copies its streams, and decodes the
// result into out.
func (c execCalls) execute(ctx context.Context, path string, in any, stream bool, sio brig.IO, out any) error {
	rq := request{method: http.MethodPost, path: path}
	if !stream {
		return c.call(ctx, rq, in, out)
	}
	// Returning from this function cancels the request, which ends the process.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := encode(in)
	if err != nil {
		return err
	}
	body, stop := newInput(first, sio.Stdin)
	defer stop()
	if rq.body, rq.contentType, rq.accept = body, v1.JSON, v1.NDJSON; sio.Stdin != nil {
		rq.contentType = v1.NDJSON
	}
	resp, err := c.send(ctx, rq)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	outputs := outputWriters(sio)
	return c.readEvents(ctx, resp.Body, out, func(event string, line []byte) error {
		if event == v1.EventStarted && sio.Started != nil {
			var started v1.Started
			if err := json.Unmarshal(line, &started); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
			sio.Started(started.Exec)
		}
		w := outputs[event]
		if w == nil {
			return nil
		}
		var chunk v1.Chunk
		if err := json.Unmarshal(line, &chunk); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		if _, err := w.Write(chunk.Bytes()); err != nil {
			return fmt.Errorf("write %s: %w", event, err)
		}
		return nil
	})
}

// readEvents reads the events of a response, passes each to on, and decodes the
// last one into out.
func (c *conn) readEvents(ctx context.Context, body io.Reader, out any, on func(event string, line []byte) error) error {
	for d := json.NewDecoder(body); ; {
		var line json.RawMessage
		var e v1.Event
		err := d.Decode(&line)
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			return c.connectionError(ctx, "the connection ended before the result", err)
		}
		switch e.Event {
		case v1.EventResult:
			if err := json.Unmarshal(line, out); err != nil {
				return fmt.Errorf("decode result: %w", err)
			}
			return nil
		case v1.EventError:
			var errBody v1.ErrorAnswer
			if err := json.Unmarshal(line, &errBody); err != nil {
				return fmt.Errorf("decode error: %w", err)
			}
			return restore(errBody.Error)
		}
		if err := on(e.Event, line); err != nil {
			return err
		}
	}
}
