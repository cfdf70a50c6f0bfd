package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// maxBody bounds the body of a request to the control plane.
const maxBody = 4 << 20

// problem is an error as E2B's clients expect it.
type problem struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// words are what E2B calls the fields of a Spec.
var words = map[string]string{"ttl_ms": "timeout", "labels": "metadata", "env": "envVars", "image": "templateID"}

// asProblem returns err as a client may see it.
func asProblem(err error) problem {
	e := brig.AsError(err)
	p := problem{Code: door.StatusOf(err), Message: e.Message}
	if e.Field != "" {
		field := e.Field
		if word := words[field]; word != "" {
			field = word
		}
		p.Message = field + ": " + p.Message
	}
	if e.Kind == brig.InvalidArgument && e.Hint != "" {
		p.Message += " (" + e.Hint + ")"
	}
	switch e.Kind {
	case brig.CreationFailed:
		p.ErrorCode = "sandbox_create_failed"
	case brig.Internal:
		p.ErrorCode = "internal_server_error"
	}
	return p
}

// fail answers with err, unless an answer has begun: then it breaks off.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := asProblem(err)
	if p.Code != http.StatusNotImplemented {
		door.Log(r, err)
	}
	if a, ok := w.(*answer); ok && a.begun {
		door.Abort(w)
		return
	}
	// Clients try again by themselves, if this is a number of seconds.
	switch p.Code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(door.RetryAfter(err)))
	}
	d.write(w, r, p.Code, p)
}

// write answers with v. Nobody is left to be told when that fails.
func (d *Door) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	if err := door.WriteJSON(w, status, v); err != nil {
		d.Log.DebugContext(r.Context(), "e2b: answer", "path", r.URL.Path, "error", err)
	}
}

// none answers without a body. Clients take an empty chunked one for a fault.
func none(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNoContent)
}

// answer remembers whether there is one.
type answer struct {
	http.ResponseWriter
	begun bool
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.begun = a.begun || status >= 200 || status == http.StatusSwitchingProtocols
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(p)
}

// recovered answers panics in E2B's shape. http.ErrAbortHandler is how a
// stream of a sandbox that died is broken off.
func (d *Door) recovered(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w}
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				door.Abort(a)
			default:
				d.fail(a, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		next(a, r)
	})
}

// read reads r's body into v. Bodies may be empty, and fields that are not
// known are left to newer clients; a value of the wrong type is an error.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return door.BodyError(err)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	err = json.Unmarshal(body, v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return brig.InvalidField(wrong.Field, "it cannot be a JSON %s", wrong.Value).Because(err)
	}
	if err != nil {
		return brig.Errorf(brig.InvalidArgument, "the body is not a JSON object that fits this request").Because(err)
	}
	return nil
}
