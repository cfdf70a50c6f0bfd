package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// Exec implements brig.Service.
func (c *Client) Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	in, path := fromCommand(cmd), sandboxPath(name, "exec")
	in.Stream, in.Streams = wanted(sio)
	var out wire.Result
	if err := c.execute(ctx, path, in, in.Stream, sio, &out); err != nil {
		return nil, err
	}
	return toResult(out), nil
}

// Run implements brig.Service.
func (c *Client) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	if err := checkProgram(p); err != nil {
		return nil, err
	}
	in := fromProgram(p)
	sio.Result = nil // a program's result is in its outcome
	in.Stream, in.Streams = wanted(sio)
	var out wire.RunAnswer
	if err := c.execute(ctx, "/v1/run", in, in.Stream, sio, &out); err != nil {
		return nil, err
	}
	return toOutcome(out), nil
}

// GetRun implements brig.Service.
func (c *Client) GetRun(ctx context.Context, name string) (*brig.Outcome, error) {
	var out wire.RunAnswer
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/runs/" + segment(name)}, nil, &out); err != nil {
		return nil, err
	}
	return toOutcome(out), nil
}

// wanted says whether sio needs events, and of which streams. What has no
// writer is captured in the result instead.
func wanted(sio brig.IO) (bool, []string) {
	streams := []string{}
	for name, w := range writers(sio) {
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

func writers(sio brig.IO) map[string]io.Writer {
	return map[string]io.Writer{
		wire.EventStdout: sio.Stdout, wire.EventStderr: sio.Stderr, wire.EventDescriptor3: sio.Result,
	}
}

// execute asks for something to be run, carries its streams, and reads the
// result into out.
func (c *Client) execute(ctx context.Context, path string, in any, stream bool, sio brig.IO, out any) error {
	rq := request{method: http.MethodPost, path: path}
	if !stream {
		return c.call(ctx, rq, in, out)
	}
	// Whatever ends this ends the request, and with it the process.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := encode(in)
	if err != nil {
		return err
	}
	body, stop := input(first, sio.Stdin)
	defer stop()
	if rq.body, rq.contentType, rq.accept = body, wire.JSON, wire.NDJSON; sio.Stdin != nil {
		rq.contentType = wire.NDJSON
	}
	resp, err := c.send(ctx, rq)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	outputs := writers(sio)
	return c.events(ctx, resp.Body, out, func(event string, line []byte) error {
		if event == wire.EventStarted && sio.Started != nil {
			var started wire.Started
			if err := json.Unmarshal(line, &started); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
			sio.Started(started.Exec)
		}
		w := outputs[event]
		if w == nil {
			return nil
		}
		var chunk wire.Chunk
		if err := json.Unmarshal(line, &chunk); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		data := chunk.DataB64
		if data == nil {
			data = []byte(chunk.Data)
		}
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("write %s: %w", event, err)
		}
		return nil
	})
}

// events reads an answer's events, gives each to on, and reads the last into
// out.
func (c *Client) events(ctx context.Context, body io.Reader, out any, on func(event string, line []byte) error) error {
	for d := json.NewDecoder(body); ; {
		var line json.RawMessage
		var e wire.Event
		err := d.Decode(&line)
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			return c.lost(ctx, "the connection ended before the result", err)
		}
		switch e.Event {
		case wire.EventResult:
			if err := json.Unmarshal(line, out); err != nil {
				return fmt.Errorf("decode result: %w", err)
			}
			return nil
		case wire.EventError:
			var answer wire.ErrorAnswer
			if err := json.Unmarshal(line, &answer); err != nil {
				return fmt.Errorf("decode error: %w", err)
			}
			return restore(answer.Error)
		}
		if err := on(e.Event, line); err != nil {
			return err
		}
	}
}
