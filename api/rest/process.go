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

// attachDelay is how long an attached client waits for the response header
// while the process is silent.
const attachDelay = 200 * time.Millisecond

func (a *sandboxAPI) processes(r *http.Request) brig.Processes {
	return a.Service.Processes(param(r, "name"))
}

func (a *sandboxAPI) startProcess(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) listProcesses(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) attach(w http.ResponseWriter, r *http.Request, q url.Values) error {
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
// must call the returned function before end.
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

func (a *sandboxAPI) processInput(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	data, err := readInput(w, r)
	if err != nil {
		return err
	}
	return writeNoResult(w, a.processes(r).Input(r.Context(), pid, data))
}

// readInput returns the input in the request: raw bytes, or a document that
// contains them.
func readInput(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if httpapi.MediaType(r, v1.Octets) == nil {
		return httpapi.ReadBody(w, r, httpapi.MaxBody)
	}
	var in v1.ProcessInput
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		if httpapi.StatusOf(err) == http.StatusUnsupportedMediaType {
			err = httpapi.MediaType(r, v1.Octets, v1.JSON)
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

// writeNoResult answers a request that has no result.
func writeNoResult(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (a *sandboxAPI) closeInput(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := intParam(r, "pid")
	if err != nil {
		return err
	}
	return writeNoResult(w, a.processes(r).CloseInput(r.Context(), pid))
}

func (a *sandboxAPI) signalProcess(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) resize(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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
