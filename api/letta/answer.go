package letta

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// handle serves one route.
func (d *Door) handle(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.Route(r, rt.path)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, door.MaxBody))
		if err != nil {
			d.fail(w, r, door.BodyError(err))
			return
		}
		v, err := rt.f(r, body)
		switch {
		case err != nil:
			d.fail(w, r, err)
		case rt.status == http.StatusNoContent:
			w.WriteHeader(rt.status)
		default:
			if err := door.WriteJSON(w, rt.status, v); err != nil {
				d.Log.DebugContext(r.Context(), "answer", "error", err)
			}
		}
	})
}

// invalid is a request that does not have the form of its route: 422, with a
// list, as the framework of the first server has it.
type invalid struct {
	complaint wire.LettaComplaint
	err       *brig.Error
}

// Error implements error.
func (i *invalid) Error() string { return i.err.Error() }

// Unwrap lets brig.AsError find what a caller may see.
func (i *invalid) Unwrap() error { return i.err }

func complain(kind, message string, at ...string) error {
	return &invalid{
		wire.LettaComplaint{Type: kind, Loc: append([]string{"body"}, at...), Msg: message},
		brig.InvalidField(strings.Join(at, "."), "%s", message).WithHint("see the type of the field"),
	}
}

// badID is an id of which not even the form is right.
type badID struct {
	err     *brig.Error
	example string
}

// Error implements error.
func (b *badID) Error() string { return b.err.Error() }

// Unwrap lets brig.AsError find what a caller may see.
func (b *badID) Unwrap() error { return b.err }

// fail answers with err.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	door.Log(r, err)
	status, e := door.StatusOf(err), brig.AsError(err)
	out := wire.LettaProblem{Error: door.Body(err).Error}
	message := e.Message
	if e.Field != "" {
		message = e.Field + ": " + message
	}
	if e.Hint != "" {
		message += " (" + e.Hint + ")"
	}
	out.Detail = message
	if i, ok := errors.AsType[*invalid](err); ok {
		status, out.Detail = http.StatusUnprocessableEntity, []wire.LettaComplaint{i.complaint}
	}
	if b, ok := errors.AsType[*badID](err); ok {
		status, out.TraceID, out.Examples = http.StatusUnprocessableEntity, w.Header().Get(door.RequestID), []string{b.example}
	}
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="brig"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(door.RetryAfter(err)))
	}
	if err := door.WriteJSON(w, status, out); err != nil {
		d.Log.DebugContext(r.Context(), "answer", "error", err)
	}
}

// read decodes a body. Fields that nobody knows are let pass, as Letta lets
// them.
func read(body []byte, into any) error {
	if len(body) == 0 {
		return complain("missing", "Field required")
	}
	err := json.Unmarshal(body, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at := []string{}
		if wrong.Field != "" {
			at = strings.Split(wrong.Field, ".")
		}
		return complain(wrong.Type.Kind().String()+"_type", "Input should be a valid "+wrong.Type.Kind().String(), at...)
	}
	if err != nil {
		return complain("json_invalid", "the body is not a JSON object")
	}
	return nil
}

const uuid = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`

var (
	configID   = regexp.MustCompile(`^` + wire.LettaConfigID + uuid + `$`)
	variableID = regexp.MustCompile(`^` + wire.LettaVariableID + uuid + `$`)
)

// config is the id in a path of a configuration.
func config(r *http.Request) (string, error) {
	return id(chi.URLParam(r, "config"), configID, wire.LettaConfigID)
}

func variable(r *http.Request) (string, error) {
	return id(chi.URLParam(r, "variable"), variableID, wire.LettaVariableID)
}

func id(given string, form *regexp.Regexp, prefix string) (string, error) {
	if !form.MatchString(given) {
		example := prefix + "123e4567-e89b-42d3-8456-426614174000"
		return "", &badID{brig.InvalidField("id", "%q has not the form of an id", brig.Clip(given, 80)).WithHint("for example %s", example), example}
	}
	return strings.TrimPrefix(given, prefix), nil
}
