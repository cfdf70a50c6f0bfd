package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// refusal is an error with a status of its own, for what HTTP tells apart and
// our kinds do not.
type refusal struct {
	err    *brig.Error
	status int
}

// Error implements error.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap lets brig.AsError find the error that a caller may see.
func (r *refusal) Unwrap() error { return r.err }

// WithStatus returns e as an error that WriteError answers with status.
func WithStatus(status int, e *brig.Error) error { return &refusal{err: e, status: status} }

// StatusOf returns the HTTP status with which WriteError answers err.
func StatusOf(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	return Status(brig.KindOf(err))
}

// Body returns err as a caller may see it.
func Body(err error) wire.ErrorAnswer {
	e := brig.AsError(err)
	return wire.ErrorAnswer{Error: wire.Error{
		Code: e.Kind.Code(), Kind: string(e.Kind), Message: e.Message, Field: e.Field, Hint: e.Hint, Fields: e.Fields,
	}}
}

// Seconds after which to try again what was refused for now.
const (
	retryLimited     = 1
	retryUnavailable = 5
)

// RetryAfter is after how many seconds to try again what err refuses for now.
func RetryAfter(err error) int {
	if wait := brig.AsError(err).RetryAfter; wait > 0 {
		return int((wait + time.Second - 1) / time.Second)
	}
	if StatusOf(err) == http.StatusServiceUnavailable {
		return retryUnavailable
	}
	return retryLimited
}

// WriteError answers with err.
func WriteError(w http.ResponseWriter, err error) error {
	status := StatusOf(err)
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="brig"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(RetryAfter(err)))
	}
	return WriteJSON(w, status, Body(err))
}

// WriteJSON answers with v. Nothing is sent before v is known to be JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	b, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", wire.JSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		return brig.Errorf(brig.Canceled, "the client went away").Because(err)
	}
	return nil
}

// Marshal returns v as one line of JSON that people can read: without the
// escapes that only a web page would need.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
