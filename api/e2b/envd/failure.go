package envd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
)

// gone is the message that E2B's own proxy sends for a sandbox that is not
// running.
const gone = "The sandbox was not found"

func errGone() error {
	return connect.NewError(connect.CodeUnavailable, brig.Errorf(brig.NotFound, gone))
}

// isRunning reports whether a sandbox is still running, according to the
// server's own state.
func (e *Envd) isRunning(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	sb, err := e.service.Get(ctx, id)
	if err != nil {
		return brig.KindOf(err) != brig.NotFound
	}
	return sb.State == brig.Running || sb.State == brig.Creating
}

// causedByEnd reports whether the end of the sandbox caused err. If the kind of
// err shows another cause, it does not look up the sandbox.
func (e *Envd) causedByEnd(ctx context.Context, err error) bool {
	switch brig.KindOf(err) {
	case "", brig.InvalidArgument, brig.AlreadyExists, brig.RateLimited, brig.Unauthenticated, brig.PermissionDenied, brig.Unimplemented:
		return false
	}
	return !e.isRunning(ctx, callOf(ctx).box.ID)
}

// failure converts err to a Connect error for the client.
func (e *Envd) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if connectErr, ok := errors.AsType[*connect.Error](err); ok {
		return connectErr
	}
	if e.causedByEnd(ctx, err) {
		return errGone()
	}
	e.logInternal(ctx, err)
	seen := brig.AsError(err)
	return connect.NewError(code(seen), errors.New(errorText(seen)))
}

// logInternal logs err if it is an internal error.
func (e *Envd) logInternal(ctx context.Context, err error) {
	if brig.KindOf(err) == brig.Internal {
		e.log.ErrorContext(ctx, "envd", slog.String("sandbox", callOf(ctx).box.ID), slog.Any("error", err))
	}
}

// errorText returns the message of an error with its field as prefix. Messages
// about a path already contain the path.
func errorText(err *brig.Error) string {
	if err.Field != "" && err.Field != "path" {
		return err.Field + ": " + err.Message
	}
	return err.Message
}

// exhausted reports whether err is a FailedPrecondition caused by a full disk
// or an exceeded limit.
func exhausted(err *brig.Error) bool {
	if err.Kind != brig.FailedPrecondition {
		return false
	}
	m := strings.ToLower(err.Message)
	return diskFull(err) || strings.Contains(m, "limit") || strings.Contains(m, "too many")
}

// diskFull reports whether the disk is full.
func diskFull(err *brig.Error) bool {
	m := strings.ToLower(err.Message)
	return err.Kind == brig.FailedPrecondition && (strings.Contains(m, "full") || strings.Contains(m, "no space"))
}

// code maps every error kind to a Connect code. For "unavailable", SDKs report
// that the sandbox does not exist.
func code(err *brig.Error) connect.Code {
	if exhausted(err) {
		return connect.CodeResourceExhausted
	}
	switch err.Kind {
	case brig.NotFound:
		return connect.CodeNotFound
	case brig.AlreadyExists:
		return connect.CodeAlreadyExists
	case brig.InvalidArgument:
		return connect.CodeInvalidArgument
	case brig.FailedPrecondition, brig.InvalidConfig, brig.ConnectionFailed:
		return connect.CodeFailedPrecondition
	case brig.RateLimited, brig.OutOfMemory:
		return connect.CodeResourceExhausted
	case brig.Unavailable, brig.NotInitialized:
		return connect.CodeUnavailable
	case brig.PermissionDenied, brig.PolicyBlocked:
		return connect.CodePermissionDenied
	case brig.Unauthenticated:
		return connect.CodeUnauthenticated
	case brig.Timeout:
		return connect.CodeDeadlineExceeded
	case brig.Unimplemented:
		return connect.CodeUnimplemented
	case brig.Canceled:
		return connect.CodeCanceled
	}
	return connect.CodeInternal // brig.Internal, brig.CreationFailed
}
