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

// gone is what E2B's own proxy says of a sandbox that does not run.
const gone = "The sandbox was not found"

func errGone() error {
	return connect.NewError(connect.CodeUnavailable, brig.Errorf(brig.NotFound, gone))
}

// alive reports whether a sandbox still runs, as far as anybody can say.
func (e *Envd) alive(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	sb, err := e.service.Get(ctx, id)
	if err != nil {
		return brig.KindOf(err) != brig.NotFound
	}
	return sb.State == brig.Running || sb.State == brig.Creating
}

// dead reports whether err came of the end of the sandbox. Errors that speak
// of something else are not looked into.
func (e *Envd) dead(ctx context.Context, err error) bool {
	switch brig.KindOf(err) {
	case "", brig.InvalidArgument, brig.AlreadyExists, brig.RateLimited, brig.Unauthenticated, brig.PermissionDenied, brig.Unimplemented:
		return false
	}
	return !e.alive(ctx, callOf(ctx).box.ID)
}

// failure is err as a client may see it.
func (e *Envd) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*connect.Error](err); ok {
		return own
	}
	if e.dead(ctx, err) {
		return errGone()
	}
	e.note(ctx, err)
	seen := brig.AsError(err)
	return connect.NewError(code(seen), errors.New(text(seen)))
}

// note logs what is nobody's fault but ours.
func (e *Envd) note(ctx context.Context, err error) {
	if brig.KindOf(err) == brig.Internal {
		e.log.ErrorContext(ctx, "envd", slog.String("sandbox", callOf(ctx).box.ID), slog.Any("error", err))
	}
}

// text is what an error says, its field first. What is said of a path names it
// already.
func text(err *brig.Error) string {
	if err.Field != "" && err.Field != "path" {
		return err.Field + ": " + err.Message
	}
	return err.Message
}

// exhausted reports whether a precondition is that there be room.
func exhausted(err *brig.Error) bool {
	if err.Kind != brig.FailedPrecondition {
		return false
	}
	m := strings.ToLower(err.Message)
	return diskFull(err) || strings.Contains(m, "limit") || strings.Contains(m, "too many")
}

// diskFull reports whether there is no room for a file.
func diskFull(err *brig.Error) bool {
	m := strings.ToLower(err.Message)
	return err.Kind == brig.FailedPrecondition && (strings.Contains(m, "full") || strings.Contains(m, "no space"))
}

// code gives every kind of error its Connect code. "unavailable" makes SDKs
// say that the sandbox is gone.
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
