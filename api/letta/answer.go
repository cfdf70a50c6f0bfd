package letta

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/internal/exactjson"
)

// handle returns the handler of a route.
func (d *API) handle(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpapi.RecordRoute(r, rt.path)
		var body []byte
		err := httpapi.Check(r, d.Service, "", rt.op)
		if err == nil {
			body, err = httpapi.ReadDocument(w, r, rt.maxBody())
		}
		if err != nil {
			d.fail(w, r, err)
			return
		}
		v, err := rt.f(r, body)
		switch {
		case err != nil:
			d.fail(w, r, err)
		case rt.status == http.StatusNoContent:
			w.WriteHeader(rt.status)
		default:
			if err := httpapi.WriteJSON(w, rt.status, v); err != nil {
				d.Log.DebugContext(r.Context(), "answer", "error", err)
			}
		}
	})
}

// maxBody returns the maximum size of the body of a route, in bytes.
func (rt route) maxBody() int64 {
	if rt.op == brig.OpRunTool {
		return httpapi.MaxBody
	}
	return httpapi.SmallBody
}

// validationError is the error for a request body of the wrong form. It is
// answered with 422 and a list, in the format of the framework of Letta's
// server.
type validationError struct {
	detail v1.LettaComplaint
	err    *brig.Error
}

// Error implements error.
func (i *validationError) Error() string { return i.err.Error() }

// Unwrap lets brig.AsError find the error for the caller.
func (i *validationError) Unwrap() error { return i.err }

func invalidFieldError(kind, message string, loc ...string) error {
	return &validationError{
		v1.LettaComplaint{Type: kind, Loc: append([]string{"body"}, loc...), Msg: message},
		brig.InvalidField(strings.Join(loc, "."), "%s", message).WithHint("see the type of the field"),
	}
}

// badID is the error for a malformed id.
type badID struct {
	err     *brig.Error
	example string
}

// Error implements error.
func (b *badID) Error() string { return b.err.Error() }

// Unwrap lets brig.AsError find the error for the caller.
func (b *badID) Unwrap() error { return b.err }

// fail responds with err.
func (d *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	httpapi.Log(r, err)
	status, e := httpapi.StatusOf(err), brig.AsError(err)
	out := v1.LettaProblem{Error: httpapi.Body(err).Error}
	message := e.Message
	if e.Field != "" {
		message = e.Field + ": " + message
	}
	if e.Hint != "" {
		message += " (" + e.Hint + ")"
	}
	out.Detail = message
	if i, ok := errors.AsType[*validationError](err); ok {
		status, out.Detail = http.StatusUnprocessableEntity, []v1.LettaComplaint{i.detail}
	}
	if b, ok := errors.AsType[*badID](err); ok {
		status, out.TraceID, out.Examples = http.StatusUnprocessableEntity, w.Header().Get(httpapi.RequestID), []string{b.example}
	}
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="brig"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(httpapi.RetryAfter(err)))
	}
	if err := httpapi.WriteJSON(w, status, out); err != nil {
		d.Log.DebugContext(r.Context(), "answer", "error", err)
	}
}

// read decodes a body. It ignores unknown fields, as Letta does.
func read(body []byte, into any) error {
	if len(body) == 0 {
		return invalidFieldError("missing", "Field required")
	}
	err := exactjson.Unmarshal(body, into)
	if invalid, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		loc := []string{}
		if invalid.Field != "" {
			loc = strings.Split(invalid.Field, ".")
		}
		return invalidFieldError(invalid.Type.Kind().String()+"_type", "Input should be a valid "+invalid.Type.Kind().String(), loc...)
	}
	if err != nil {
		return invalidFieldError("json_invalid", "the body is not a JSON object")
	}
	return nil
}

const uuid = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`

var (
	configID   = regexp.MustCompile(`^` + v1.LettaConfigID + uuid + `$`)
	variableID = regexp.MustCompile(`^` + v1.LettaVariableID + uuid + `$`)
)

// configFromPath returns the id of the configuration in the path of r.
func configFromPath(r *http.Request) (string, error) {
	return parseID(chi.URLParam(r, "config"), configID, v1.LettaConfigID)
}

func variableFromPath(r *http.Request) (string, error) {
	return parseID(chi.URLParam(r, "variable"), variableID, v1.LettaVariableID)
}

func parseID(text string, form *regexp.Regexp, prefix string) (string, error) {
	if !form.MatchString(text) {
		example := prefix + "123e4567-e89b-42d3-8456-426614174000"
		return "", &badID{brig.InvalidField("id", "%q has not the form of an id", brig.Clip(text, 80)).WithHint("for example %s", example), example}
	}
	return strings.TrimPrefix(text, prefix), nil
}
