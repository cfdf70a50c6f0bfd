package brig

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error. The set is closed: every API maps every kind, and
// a test checks it.
type Kind string

// Kinds of errors.
const (
	NotInitialized     Kind = "not_initialized"
	InvalidConfig      Kind = "invalid_config"
	ConnectionFailed   Kind = "connection_failed"
	CreationFailed     Kind = "creation_failed"
	Timeout            Kind = "timeout"
	OutOfMemory        Kind = "out_of_memory"
	PolicyBlocked      Kind = "blocked_by_policy"
	RateLimited        Kind = "rate_limited"
	Unavailable        Kind = "provider_unavailable"
	InvalidArgument    Kind = "invalid_argument"
	Unauthenticated    Kind = "unauthenticated"
	PermissionDenied   Kind = "permission_denied"
	NotFound           Kind = "not_found"
	AlreadyExists      Kind = "already_exists"
	FailedPrecondition Kind = "failed_precondition"
	Unimplemented      Kind = "unimplemented"
	Canceled           Kind = "canceled"
	Internal           Kind = "internal"
)

// codes maps each kind to its stable code. Requirement H07 defines SB001 to
// SB009. A code is never reused for another kind.
var codes = map[Kind]string{
	NotInitialized: "SB001", InvalidConfig: "SB002", ConnectionFailed: "SB003",
	CreationFailed: "SB004", Timeout: "SB005", OutOfMemory: "SB006",
	PolicyBlocked: "SB007", RateLimited: "SB008", Unavailable: "SB009",
	InvalidArgument: "SB010", Unauthenticated: "SB011", PermissionDenied: "SB012",
	NotFound: "SB013", AlreadyExists: "SB014", FailedPrecondition: "SB015",
	Unimplemented: "SB016", Canceled: "SB017", Internal: "SB018",
}

// Kinds lists every kind in the order of its code.
var Kinds = []Kind{
	NotInitialized, InvalidConfig, ConnectionFailed, CreationFailed, Timeout, OutOfMemory,
	PolicyBlocked, RateLimited, Unavailable, InvalidArgument, Unauthenticated, PermissionDenied,
	NotFound, AlreadyExists, FailedPrecondition, Unimplemented, Canceled, Internal,
}

// Code returns the stable code of k, or "SB018" if k is unknown.
func (k Kind) Code() string {
	if c, ok := codes[k]; ok {
		return c
	}
	return codes[Internal]
}

// Error is an error that a caller may see. Err is for the operator's log and
// is never sent to a caller.
type Error struct {
	Kind    Kind
	Message string
	Field   string // the invalid field of the request, if any
	Hint    string // how the caller can resolve the error
	Err     error
	// Fields are the errors of a configuration's fields, if several fields are
	// invalid.
	Fields []FieldError
	// Retry determines what may be retried after this error.
	Retry Retry
	// RetryAfter is the time after which the call may succeed; zero if unknown.
	RetryAfter time.Duration
}

// Retry determines which attempts the engine may repeat after an error.
type Retry int

// Kinds of retries, strictest last.
const (
	// RetryByKind permits another provider if CanRetryElsewhere reports true.
	RetryByKind Retry = iota
	// RetryRoute permits a new selection of providers, because the selected one was
	// replaced or removed.
	RetryRoute
	// RetryContained is like RetryByKind, for a program that may have started.
	// Another provider may run the program only if it cannot have had effects
	// outside its sandbox.
	RetryContained
	// RetryNever forbids any further attempt.
	RetryNever
)

// WithRetry returns err as an Error with r.
func WithRetry(err error, r Retry) *Error {
	e := *AsError(err)
	if direct, ok := err.(*Error); ok && direct.Kind == e.Kind { //nolint:errorlint // only err itself can be copied without its causes
		e = *direct
	} else {
		e.Err = err
	}
	e.Retry = r
	return &e
}

// RetryOf returns the strictest Retry of an error and all its causes.
func RetryOf(err error) Retry {
	var strictest Retry
	if e, ok := err.(*Error); ok { //nolint:errorlint // the loop visits each error of the tree
		strictest = e.Retry
	}
	switch u := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		strictest = max(strictest, RetryOf(u.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, cause := range u.Unwrap() {
			strictest = max(strictest, RetryOf(cause))
		}
	}
	return strictest
}

// Error implements error, for logs. It includes the cause.
func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Err != nil {
		s = fmt.Sprintf("%s: %v", s, e.Err)
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error of kind k.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// InvalidField returns an InvalidArgument error that names a field.
func InvalidField(field, format string, args ...any) *Error {
	e := Errorf(InvalidArgument, format, args...)
	e.Field = field
	return e
}

// WithHint sets the remedy and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Because sets the cause, which only the log contains, and returns e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// AsError returns err as an Error for the caller. It returns err itself if that
// is an Error. Otherwise it returns an Error of kind Internal (Canceled for an
// ended context) with err as its cause.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Kind == Internal {
			return &Error{Kind: Internal, Message: "internal error", Hint: "see the server's log", Err: err}
		}
		return e
	}
	if errors.Is(err, context.Canceled) {
		return Errorf(Canceled, "the caller disconnected").Because(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Errorf(Timeout, "the request took too long").Because(err)
	}
	return &Error{Kind: Internal, Message: "internal error", Hint: "see the server's log", Err: err}
}

// KindOf returns the kind of err; empty for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return AsError(err).Kind
}
