package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// statusError is an error with its own HTTP status, for cases that HTTP
// distinguishes and error kinds do not.
type statusError struct {
	err    *brig.Error
	status int
}

// Error implements error.
func (r *statusError) Error() string { return r.err.Error() }

// Unwrap lets brig.AsError find the error for the caller.
func (r *statusError) Unwrap() error { return r.err }

// WithStatus returns e as an error for which WriteError responds with status.
func WithStatus(status int, e *brig.Error) error { return &statusError{err: e, status: status} }

// StatusOf returns the HTTP status with which WriteError responds to err.
func StatusOf(err error) int {
	if r, ok := errors.AsType[*statusError](err); ok {
		return r.status
	}
	return Status(brig.KindOf(err))
}

// Body converts err to the response for a caller.
func Body(err error) v1.ErrorAnswer {
	e := brig.AsError(err)
	return v1.ErrorAnswer{Error: v1.Error{
		Code: e.Kind.Code(), Kind: string(e.Kind), Message: e.Message, Field: e.Field, Hint: e.Hint, Fields: e.Fields,
	}}
}

// Retry-After values in seconds.
const (
	retryLimited     = 1
	retryUnavailable = 5
)

// RetryAfter returns the seconds after which a client should retry.
func RetryAfter(err error) int {
	if wait := brig.AsError(err).RetryAfter; wait > 0 {
		return int((wait + time.Second - 1) / time.Second)
	}
	if StatusOf(err) == http.StatusServiceUnavailable {
		return retryUnavailable
	}
	return retryLimited
}

// WriteError responds with err.
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

// WriteJSON responds with v. It encodes v completely before it sends the
// header.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	b, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", v1.JSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		return brig.Errorf(brig.Canceled, "the client disconnected").Because(err)
	}
	return nil
}

// Marshal returns v as one line of JSON without HTML escapes, so that people
// can read it.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
