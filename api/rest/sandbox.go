package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) create(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.Spec
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	spec, err := toSpec(in)
	if err != nil {
		return err
	}
	s, err := a.Service.Create(r.Context(), spec)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/sandboxes/"+url.PathEscape(s.Spec.Name))
	return door.WriteJSON(w, http.StatusCreated, fromSandbox(s))
}

func (a *api) get(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	s, err := a.Service.Get(r.Context(), param(r, "name"))
	return answerSandbox(w, s, err)
}

func (a *api) list(w http.ResponseWriter, r *http.Request, q url.Values) error {
	o, err := listOptions(q)
	if err != nil {
		return err
	}
	page, err := a.Service.List(r.Context(), o)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromPage(page))
}

func (a *api) remove(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.Remove(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) stop(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.StopRequest
	if err := door.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	grace, err := toDuration("grace_ms", in.GraceMS)
	if err != nil {
		return err
	}
	s, err := a.Service.Stop(r.Context(), param(r, "name"), grace)
	return answerSandbox(w, s, err)
}

func (a *api) kill(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := door.ReadJSON(w, r, &wire.KillRequest{}, true); err != nil {
		return err
	}
	s, err := a.Service.Kill(r.Context(), param(r, "name"))
	return answerSandbox(w, s, err)
}

func (a *api) extend(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.ExtendRequest
	if err := door.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	ttl, err := toDuration("ttl_ms", in.TTLMS)
	if err != nil {
		return err
	}
	s, err := a.Service.Extend(r.Context(), param(r, "name"), ttl)
	return answerSandbox(w, s, err)
}

func (a *api) setEgress(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.Egress
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	s, err := a.Service.SetEgress(r.Context(), param(r, "name"), in.Noun())
	return answerSandbox(w, s, ofBody(err, "egress"))
}

// ofBody names a field as a body has it that is all of one noun, of which the
// field is a part to everybody else.
func ofBody(err error, noun string) error {
	e, ok := errors.AsType[*brig.Error](err)
	if !ok {
		return err
	}
	field, ok := strings.CutPrefix(e.Field, noun+".")
	if !ok {
		return err
	}
	named := *e
	named.Field = field
	return &named
}

func answerSandbox(w http.ResponseWriter, s *brig.Sandbox, err error) error {
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromSandbox(s))
}

func (a *api) logs(w http.ResponseWriter, r *http.Request, q url.Values) error {
	tail, err := number(q, "tail")
	if err != nil {
		return err
	}
	times, err := yes(q, "times")
	if err != nil {
		return err
	}
	logs, err := a.Service.Logs(r.Context(), param(r, "name"), brig.LogOptions{Tail: tail, Times: times})
	if err != nil {
		return err
	}
	defer logs.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, logs); err != nil && r.Context().Err() == nil {
		return fmt.Errorf("send log: %w", err)
	}
	return nil
}
