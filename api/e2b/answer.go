package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/exactjson"
)

// problem is an error in the JSON format that E2B clients expect.
type problem struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// fieldNames maps the field names of a Spec to E2B's names.
var fieldNames = map[string]string{"ttl_ms": "timeout", "labels": "metadata", "env": "envVars", "image": "templateID", "pause_at_end": "autoPause", "pause_files_only": "autoPauseMemory", "volumes": "volumeMounts", "secret": "signatureSecret"}

// toProblem converts err to a response for the client.
func toProblem(err error) problem {
	e := brig.AsError(err)
	p := problem{Code: httpapi.StatusOf(err), Message: e.Message}
	if e.Field != "" {
		field := e.Field
		name, rest, indexed := strings.Cut(field, "[")
		if word := fieldNames[name]; word != "" {
			field = word
			if indexed {
				field += "[" + rest
			}
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

// fail responds with err. If the response has already begun, fail aborts the
// connection instead.
func (e *env) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := toProblem(err)
	if p.Code != http.StatusNotImplemented {
		httpapi.Log(r, err)
	}
	if a, ok := w.(*answer); ok && a.begun {
		httpapi.Abort(w)
		return
	}
	// Clients retry automatically if Retry-After is a number of seconds.
	switch p.Code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(httpapi.RetryAfter(err)))
	}
	e.write(w, r, p.Code, p)
}

// write responds with v as JSON. It only logs a write error, because the client
// has disconnected.
func (e *env) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	if err := httpapi.WriteJSON(w, status, v); err != nil {
		e.Log.DebugContext(r.Context(), "e2b: answer", "path", r.URL.Path, "error", err)
	}
}

// writeEmpty responds without a body. It uses status 204, because clients treat
// an empty chunked body as an error.
func writeEmpty(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNoContent)
}

// answer is a response writer that records whether the response has begun.
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

// recoverPanics answers a panic with an error in E2B's format. It passes on
// http.ErrAbortHandler, which aborts the stream of a sandbox that has ended.
func (e *env) recoverPanics(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w}
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				httpapi.Abort(a)
			default:
				e.fail(a, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		next(a, r)
	})
}

// read decodes r's JSON body into v. An empty body is allowed. Unknown fields
// are ignored, because newer clients may send them. A value of the wrong type
// is an error.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := httpapi.ReadDocument(w, r, httpapi.SmallBody)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	err = exactjson.Unmarshal(body, v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return brig.InvalidField(wrong.Field, "it cannot be a JSON %s", wrong.Value).Because(err)
	}
	if err != nil {
		return brig.Errorf(brig.InvalidArgument, "the body is not a JSON object that fits this request").Because(err)
	}
	return nil
}
