package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// call is one request that runs something: how its input comes and how its
// answer goes.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	duplex *duplex // nil unless standard input follows in the body
}

// readCall reads the request into v, from a JSON body or from the first line
// of one that goes on with standard input.
func readCall(w http.ResponseWriter, r *http.Request, v any) (*call, error) {
	c := &call{w: w, r: r}
	if r.Body == http.NoBody || door.MediaType(r, wire.NDJSON) != nil {
		err := door.ReadJSON(w, r, v, false)
		if err != nil && door.StatusOf(err) == http.StatusUnsupportedMediaType {
			err = door.MediaType(r, wire.JSON, wire.NDJSON)
		}
		return c, err
	}
	var err error
	c.duplex, err = newDuplex(w, r, v)
	return c, err
}

// streaming says whether and what a call streams.
type streaming struct {
	on      bool
	streams []string
	allowed []string
}

// wants returns which outputs to stream, by the names of their events.
func (s streaming) wants() (map[string]bool, error) {
	if s.streams == nil {
		return map[string]bool{wire.EventStdout: true, wire.EventStderr: true}, nil
	}
	want := map[string]bool{}
	for i, name := range s.streams {
		if !slices.Contains(s.allowed, name) {
			return nil, brig.InvalidField("streams["+strconv.Itoa(i)+"]", "unknown stream").WithHint("known streams: %v", s.allowed)
		}
		want[name] = true
	}
	return want, nil
}

// do calls f, with events or without as the request asks, and answers.
func (c *call) do(st streaming, stdin io.Reader, f func(context.Context, brig.IO) (any, error)) error {
	want, err := st.wants()
	if err != nil {
		return err
	}
	ndjson, sse := accepts(c.r)
	if !st.on && !ndjson && !sse && c.duplex == nil {
		v, err := f(c.r.Context(), brig.IO{Stdin: stdin})
		if err != nil {
			return err
		}
		return door.WriteJSON(c.w, http.StatusOK, v)
	}
	s, ctx, stop := newStream(c.w, c.r)
	defer stop()
	var all outputs
	sio := brig.IO{
		Stdin:   stdin,
		Stdout:  s.to(wire.EventStdout, want[wire.EventStdout], &all),
		Stderr:  s.to(wire.EventStderr, want[wire.EventStderr], &all),
		Result:  s.to(wire.EventDescriptor3, want[wire.EventDescriptor3], &all),
		Started: func(id string) { _ = s.send(wire.EventStarted, wire.Started{Exec: id}) },
	}
	if c.duplex != nil {
		in, stopInput := c.duplex.stdin(s.cancel)
		defer stopInput()
		if sio.Stdin = in; stdin != nil {
			sio.Stdin = io.MultiReader(stdin, in)
		}
	}
	v, err := f(ctx, sio)
	if bad, ok := errors.AsType[*brig.Error](context.Cause(ctx)); ok && err != nil {
		err = bad // what the client sent is why the context ended
	}
	if ferr := all.flush(); ferr != nil {
		return ferr
	}
	return s.end(v, err)
}

func (a *api) exec(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.ExecRequest
	c, err := readCall(w, r, &in)
	if err != nil {
		return err
	}
	cmd, err := toCommand(in)
	if err != nil {
		return err
	}
	stdin, err := toStdin(in.Stdin, in.StdinB64)
	if err != nil {
		return err
	}
	st := streaming{in.Stream, in.Streams, []string{wire.EventStdout, wire.EventStderr, wire.EventDescriptor3}}
	return c.do(st, stdin, func(ctx context.Context, sio brig.IO) (any, error) {
		res, err := a.Service.Exec(ctx, param(r, "name"), cmd, sio)
		if err != nil {
			return nil, err
		}
		return fromResult(res), nil
	})
}

func (a *api) run(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.RunRequest
	c, err := readCall(w, r, &in)
	if err != nil {
		return err
	}
	program, err := toProgram(in)
	if err != nil {
		return err
	}
	stdin, err := toStdin(in.Stdin, in.StdinB64)
	if err != nil {
		return err
	}
	st := streaming{in.Stream, in.Streams, []string{wire.EventStdout, wire.EventStderr}}
	return c.do(st, stdin, func(ctx context.Context, sio brig.IO) (any, error) {
		o, err := a.Service.Run(ctx, program, sio)
		if err != nil {
			return nil, err
		}
		return fromOutcome(o), nil
	})
}

func (a *api) getRun(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	o, err := a.Service.GetRun(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromOutcome(o))
}

func (a *api) getExec(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	x, err := a.Service.GetExec(r.Context(), param(r, "name"), param(r, "id"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromExecution(x))
}

func (a *api) listExecs(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	xs, err := a.Service.ListExecs(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromExecutions(xs))
}
