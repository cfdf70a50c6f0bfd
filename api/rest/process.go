package rest

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// processAPI has the handlers for processes in sandboxes.
type processAPI struct{ *base }

// routes returns the routes of processes in sandboxes.
func (a processAPI) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{id: "start-process", method: post, pattern: "/v1/sandboxes/{name}/processes", tag: "processes", summary: "Start a detached process",
			handle: a.startProcess, op: brig.OpStart, in: v1.ProcessRequest{}, out: v1.Process{}, status: http.StatusCreated},
		{id: "list-processes", method: get, pattern: "/v1/sandboxes/{name}/processes", tag: "processes", summary: "List running and recently ended processes, oldest first",
			handle: a.listProcesses, out: v1.Processes{}},
		{id: "attach-process", method: get, pattern: "/v1/sandboxes/{name}/processes/{pid}/output", tag: "processes", summary: "Follow a process's output",
			handle: a.attach, longLived: true, out: v1.Result{}, events: []string{v1.EventStdout, v1.EventStderr, v1.EventPing},
			query: []parameter{{name: "offset", doc: "offset in the output from which to start; output that is no longer buffered is skipped; -1 starts with new output; default 0", number: true, min: -1, example: 0}}},
		{id: "process-input", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/input", tag: "processes", summary: "Write to a process's standard input or terminal",
			handle: a.processInput, op: brig.OpInput, maxBody: httpapi.MaxBody, in: v1.ProcessInput{}, octets: true, status: http.StatusNoContent},
		{id: "close-process-input", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/close_input", tag: "processes", summary: "Close a process's standard input",
			handle: a.closeInput, status: http.StatusNoContent},
		{id: "signal-process", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/signal", tag: "processes", summary: "Send a signal to a process and its group",
			handle: a.signalProcess, op: brig.OpSignal, in: v1.SignalRequest{}, status: http.StatusNoContent},
		{id: "resize-terminal", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/resize", tag: "processes", summary: "Resize a process's terminal",
			handle: a.resize, op: brig.OpResize, in: v1.Terminal{}, status: http.StatusNoContent},
	}
}

// attachDelay is how long an attached client waits for the response header
// while the process is silent.
const attachDelay = 200 * time.Millisecond

func (a processAPI) processes(r *http.Request) brig.Processes {
	return a.Service.Processes(param(r, "name"))
}

func (a processAPI) startProcess(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ProcessRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	spec, err := in.Domain()
	if err != nil {
		return err
	}
	p, err := a.processes(r).Start(r.Context(), spec)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromProcess(p))
}

func (a processAPI) listProcesses(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.processes(r).List(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromProcesses(list))
}

// intParam returns a path parameter that is an integer.
func intParam(r *http.Request, name string) (int, error) {
	n, err := strconv.Atoi(param(r, name))
	if err != nil {
		return 0, brig.InvalidField(name, "must be a whole number")
	}
	return n, nil
}

func (a processAPI) attach(w http.ResponseWriter, r *http.Request, q url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	from, err := offset(q, "offset", -1, 0)
	if err != nil {
		return err
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	settled := s.beginAfter(attachDelay)
	var end *brig.Result
	err = a.processes(r).Attach(ctx, pid, from, func(e brig.ProcessEvent) error {
		switch {
		case e.End != nil:
			end = e.End
			return nil
		case e.From == brig.FromStderr:
			return s.send(v1.EventStderr, v1.FromProcessEvent(e))
		}
		return s.send(v1.EventStdout, v1.FromProcessEvent(e))
	})
	if settled(); err == nil && end == nil {
		err = brig.Errorf(brig.Internal, "a process was let go of before its end")
	}
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(v1.FromResult(end), nil)
}

// beginAfter starts the response after d even if there is no event. The caller
// must call settled before end.
func (s *stream) beginAfter(d time.Duration) (settled func()) {
	done := make(chan struct{})
	t := time.AfterFunc(d, func() {
		defer close(done)
		_ = s.send(v1.EventPing, struct{}{}) // send records its error
	})
	return func() {
		if !t.Stop() {
			<-done
		}
	}
}

func (a processAPI) processInput(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	data, err := readInput(w, r)
	if err != nil {
		return err
	}
	return writeNoResult(w, a.processes(r).WriteInput(r.Context(), pid, data))
}

// readInput returns the input in the request: raw bytes, or a document that
// contains them.
func readInput(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if httpapi.CheckMediaType(r, v1.Octets) == nil {
		return httpapi.ReadBody(w, r, httpapi.MaxBody)
	}
	var in v1.ProcessInput
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		if httpapi.StatusOf(err) == http.StatusUnsupportedMediaType {
			err = httpapi.CheckMediaType(r, v1.Octets, v1.JSON)
		}
		return nil, err
	}
	switch {
	case in.Data != nil && in.DataB64 != nil:
		return nil, brig.InvalidField("data_b64", "is given beside data").WithHint("give one of the two")
	case in.Data != nil:
		return []byte(*in.Data), nil
	case in.DataB64 == nil:
		return nil, brig.InvalidField("data", "is missing").WithHint("give data or data_b64")
	}
	return in.DataB64, nil
}

// writeNoResult responds to a request that has no result.
func writeNoResult(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (a processAPI) closeInput(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	return writeNoResult(w, a.processes(r).CloseInput(r.Context(), pid))
}

func (a processAPI) signalProcess(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	var in v1.SignalRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return writeNoResult(w, a.processes(r).Signal(r.Context(), pid, in.Signal))
}

func (a processAPI) resize(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	var in v1.Terminal
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := in.Check(""); err != nil {
		return err
	}
	return writeNoResult(w, a.processes(r).Resize(r.Context(), pid, in.Domain()))
}
