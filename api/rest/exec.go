package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// execAPI has the handlers for executions: one-shot runs and commands.
type execAPI struct{ *base }

// routes returns the routes of executions.
func (a execAPI) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	output := []string{v1.EventStarted, v1.EventStdout, v1.EventStderr, v1.EventDescriptor3, v1.EventPing}
	return []route{
		{id: "run", method: post, pattern: "/v1/run", tag: "run", summary: "Run a program in its own sandbox",
			handle: a.run, op: brig.OpRun, maxBody: httpapi.MaxBody, in: v1.RunRequest{}, out: v1.RunAnswer{}, events: output},
		{id: "list-runs", method: get, pattern: "/v1/runs", tag: "run", summary: "List finished runs, the last one to end first",
			notes: "The list has no output, values and artifacts. If the errors of runs are long, a page is shorter than its limit or empty; next_cursor is set if there are more.",
			large: true, handle: a.listRuns, out: v1.Runs{}, query: []parameter{
				{name: "status", doc: "only runs with these statuses", repeated: true, enum: outcomeStatuses(), example: []string{"error", "timeout"}},
				{name: "limit", doc: "page size; default 100", number: true, min: 1, max: 1000, example: 100},
				{name: "cursor", doc: "next_cursor of the previous page"},
			}},
		{id: "get-run", method: get, pattern: "/v1/runs/{name}", tag: "run", summary: "Get the result of a finished run",
			large: true, handle: a.getRun, out: v1.RunAnswer{}},
		{id: "exec", method: post, pattern: "/v1/sandboxes/{name}/exec", tag: "sandboxes", summary: "Run a command in a sandbox",
			notes:  "The output includes that of the command's children, until the last of them has closed it, for at most 5 s after the command has ended. Redirect the output of a server that the command leaves behind, or start it as a process.",
			handle: a.exec, op: brig.OpExec, maxBody: httpapi.MaxBody, in: v1.ExecRequest{}, out: v1.Result{}, events: output},
		{id: "list-execs", method: get, pattern: "/v1/sandboxes/{name}/execs", tag: "sandboxes", summary: "List a sandbox's executions, newest first",
			notes: "The list has at most 8 MiB. Ended executions that do not fit have no output, only its size, and no command unless it is short: get them one by one.",
			large: true, handle: a.listExecs, out: v1.Executions{}},
		{id: "get-exec", method: get, pattern: "/v1/sandboxes/{name}/execs/{id}", tag: "sandboxes", summary: "Get an execution, finished or not",
			large: true, handle: a.getExec, out: v1.Execution{}},
	}
}

// call is a request to run a program, with its input and its response.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	duplex *duplex // nil unless standard input follows in the body
}

// readCall decodes the request into v, from a JSON body or from the first line
// of an NDJSON body that continues with standard input.
func readCall(w http.ResponseWriter, r *http.Request, v any) (*call, error) {
	c := &call{w: w, r: r}
	if r.Body == http.NoBody || httpapi.CheckMediaType(r, v1.NDJSON) != nil {
		err := httpapi.ReadJSON(w, r, v, false)
		if err != nil && httpapi.StatusOf(err) == http.StatusUnsupportedMediaType {
			err = httpapi.CheckMediaType(r, v1.JSON, v1.NDJSON)
		}
		return c, err
	}
	var err error
	c.duplex, err = newDuplex(w, r, v)
	return c, err
}

// streamMode determines which outputs a call streams, if any.
type streamMode struct {
	on      bool
	streams []string
	allowed []string
}

// selectedOutputs returns the outputs to stream, by the names of their events.
func (s streamMode) selectedOutputs() (map[string]bool, error) {
	if s.streams == nil {
		return map[string]bool{v1.EventStdout: true, v1.EventStderr: true}, nil
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

// do calls f and responds with its result, preceded by events if the client
// requested them.
func (c *call) do(st streamMode, stdin io.Reader, f func(context.Context, brig.IO) (any, error)) error {
	want, err := st.selectedOutputs()
	if err != nil {
		return err
	}
	ndjson, sse := acceptedFormat(c.r)
	if !st.on && !ndjson && !sse && c.duplex == nil {
		v, err := f(c.r.Context(), brig.IO{Stdin: stdin})
		if err != nil {
			return err
		}
		return httpapi.WriteJSON(c.w, http.StatusOK, v)
	}
	s, ctx, stop := newStream(c.w, c.r)
	defer stop()
	var all outputs
	sio := brig.IO{
		Stdin:   stdin,
		Stdout:  s.writerFor(v1.EventStdout, want[v1.EventStdout], &all),
		Stderr:  s.writerFor(v1.EventStderr, want[v1.EventStderr], &all),
		Result:  s.writerFor(v1.EventDescriptor3, want[v1.EventDescriptor3], &all),
		Started: func(id string) { _ = s.send(v1.EventStarted, v1.Started{Exec: id}) },
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
		err = bad // invalid input of the client canceled the context
	}
	if ferr := all.flush(); ferr != nil {
		return ferr
	}
	return s.end(v, err)
}

func (a execAPI) exec(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ExecRequest
	c, err := readCall(w, r, &in)
	if err != nil {
		return err
	}
	cmd, err := in.Domain()
	if err != nil {
		return err
	}
	stdin, err := toStdin(in.Stdin, in.StdinB64)
	if err != nil {
		return err
	}
	st := streamMode{in.Stream, in.Streams, []string{v1.EventStdout, v1.EventStderr, v1.EventDescriptor3}}
	return c.do(st, stdin, func(ctx context.Context, sio brig.IO) (any, error) {
		res, err := a.Service.Exec(ctx, param(r, "name"), cmd, sio)
		if err != nil {
			return nil, err
		}
		return v1.FromResult(res), nil
	})
}

func (a execAPI) run(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.RunRequest
	c, err := readCall(w, r, &in)
	if err != nil {
		return err
	}
	program, err := in.Domain()
	if err != nil {
		return err
	}
	stdin, err := toStdin(in.Stdin, in.StdinB64)
	if err != nil {
		return err
	}
	st := streamMode{in.Stream, in.Streams, []string{v1.EventStdout, v1.EventStderr}}
	return c.do(st, stdin, func(ctx context.Context, sio brig.IO) (any, error) {
		o, err := a.Service.Run(ctx, program, sio)
		if err != nil {
			return nil, err
		}
		return v1.FromOutcome(o), nil
	})
}

func (a execAPI) listRuns(w http.ResponseWriter, r *http.Request, q url.Values) (err error) {
	o := brig.RunOptions{Cursor: q.Get("cursor")}
	for _, list := range q["status"] {
		for s := range strings.SplitSeq(list, ",") {
			o.Statuses = append(o.Statuses, brig.RunStatus(s))
		}
	}
	if o.Limit, err = intParameter(q, "limit"); err != nil {
		return err
	}
	page, err := a.Service.Runs(r.Context(), o)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromRuns(page))
}

func (a execAPI) getRun(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	o, err := a.Service.GetRun(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromOutcome(o))
}

func (a execAPI) getExec(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	x, err := a.Service.GetExec(r.Context(), param(r, "name"), param(r, "id"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromExecution(x))
}

func (a execAPI) listExecs(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	xs, err := a.Service.ListExecs(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromExecutions(xs))
}
