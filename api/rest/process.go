package rest

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// quiet is how long an attached client waits for the answer to begin while the
// process says nothing.
const quiet = 200 * time.Millisecond

func (a *api) processes(r *http.Request) brig.Processes { return a.Service.Processes(param(r, "name")) }

func (a *api) startProcess(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.ProcessRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	spec, err := toProcess(in)
	if err != nil {
		return err
	}
	p, err := a.processes(r).Start(r.Context(), spec)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, fromProcess(p))
}

func (a *api) processList(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.processes(r).List(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromProcesses(list))
}

// whole returns a part of the path that is a whole number.
func whole(r *http.Request, name string) (int, error) {
	n, err := strconv.Atoi(param(r, name))
	if err != nil {
		return 0, brig.InvalidField(name, "must be a whole number")
	}
	return n, nil
}

func (a *api) attach(w http.ResponseWriter, r *http.Request, q url.Values) error {
	pid, err := whole(r, "pid")
	if err != nil {
		return err
	}
	from, err := offset(q, "offset", -1, 0)
	if err != nil {
		return err
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	settled := s.beginWithin(quiet)
	var end *brig.Result
	err = a.processes(r).Attach(ctx, pid, from, func(e brig.ProcessEvent) error {
		switch {
		case e.End != nil:
			end = e.End
			return nil
		case e.From == brig.FromStderr:
			return s.send(wire.EventStderr, fromPart(e))
		}
		return s.send(wire.EventStdout, fromPart(e))
	})
	if settled(); err == nil && end == nil {
		err = brig.Errorf(brig.Internal, "a process was let go of before its end")
	}
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(fromResult(end), nil)
}

// beginWithin makes the answer begin after a while even if nothing happens.
// The function that it returns must be called before end is.
func (s *stream) beginWithin(d time.Duration) (settled func()) {
	done := make(chan struct{})
	t := time.AfterFunc(d, func() {
		defer close(done)
		_ = s.send(wire.EventPing, struct{}{}) // send remembers its error
	})
	return func() {
		if !t.Stop() {
			<-done
		}
	}
}

func (a *api) processInput(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := whole(r, "pid")
	if err != nil {
		return err
	}
	data, err := readInput(w, r)
	if err != nil {
		return err
	}
	return done(w, a.processes(r).Input(r.Context(), pid, data))
}

// readInput reads a body that is bytes, or a document of them.
func readInput(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if door.MediaType(r, wire.Octets) == nil {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, door.MaxBody))
		if err != nil {
			return nil, door.BodyError(err)
		}
		return data, nil
	}
	var in wire.ProcessInput
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		if door.StatusOf(err) == http.StatusUnsupportedMediaType {
			err = door.MediaType(r, wire.Octets, wire.JSON)
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

// done answers what has nothing to say but that it is done.
func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (a *api) closeInput(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := whole(r, "pid")
	if err != nil {
		return err
	}
	return done(w, a.processes(r).CloseInput(r.Context(), pid))
}

func (a *api) signalProcess(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := whole(r, "pid")
	if err != nil {
		return err
	}
	var in wire.SignalRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return done(w, a.processes(r).Signal(r.Context(), pid, in.Signal))
}

func (a *api) resize(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	pid, err := whole(r, "pid")
	if err != nil {
		return err
	}
	var in wire.Terminal
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	size, err := toTerminal("", in)
	if err != nil {
		return err
	}
	return done(w, a.processes(r).Resize(r.Context(), pid, size))
}
