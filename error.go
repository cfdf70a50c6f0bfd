package brig

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error. The set is closed: every door maps every kind,
// and a test proves it.
type Kind string

// The kinds of error.
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

// codes gives each kind its stable code. SB001 to SB009 are those of
// requirement H07; a code is never given to another kind.
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

// Code returns the stable code of k, "SB018" if k is none of ours.
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
	Field   string // the field of the request that is at fault, if one is
	Hint    string // what to do about it
	Err     error
	// Fields are what is wrong with a configuration, if more than Field is known.
	Fields []FieldError
	// RetryAfter is when it may be otherwise, zero if that is not known.
	RetryAfter time.Duration
}

// Error implements error, for logs: it tells the cause.
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

// WithHint sets what to do about it and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Because sets the cause, for the log only, and returns e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// AsError returns err as the Error that a caller may see: err itself when it
// is one, and otherwise one of kind Internal (Canceled for a context's end)
// with err as its cause.
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
		return Errorf(Canceled, "the caller went away").Because(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Errorf(Timeout, "the request took too long").Because(err)
	}
	return &Error{Kind: Internal, Message: "internal error", Hint: "see the server's log", Err: err}
}

// KindOf reports the kind of err, empty for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return AsError(err).Kind
}
