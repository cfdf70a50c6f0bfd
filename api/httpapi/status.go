package httpapi

import (
	"net/http"

	"github.com/brig-run/brig"
)

// statusCanceled is nginx's status "client closed request". No client receives
// it, but the log and the metrics must not count a canceled request as a
// failure.
const statusCanceled = 499

// statuses maps every error kind to an HTTP status. A test checks that it is
// complete.
var statuses = map[brig.Kind]int{
	brig.NotInitialized:     http.StatusServiceUnavailable,
	brig.InvalidConfig:      http.StatusUnprocessableEntity,
	brig.ConnectionFailed:   http.StatusBadGateway,
	brig.CreationFailed:     http.StatusInternalServerError,
	brig.Timeout:            http.StatusGatewayTimeout,
	brig.OutOfMemory:        http.StatusInsufficientStorage,
	brig.PolicyBlocked:      http.StatusForbidden,
	brig.RateLimited:        http.StatusTooManyRequests,
	brig.Unavailable:        http.StatusServiceUnavailable,
	brig.InvalidArgument:    http.StatusBadRequest,
	brig.Unauthenticated:    http.StatusUnauthorized,
	brig.PermissionDenied:   http.StatusForbidden,
	brig.NotFound:           http.StatusNotFound,
	brig.AlreadyExists:      http.StatusConflict,
	brig.FailedPrecondition: http.StatusConflict,
	brig.Unimplemented:      http.StatusNotImplemented,
	brig.Canceled:           statusCanceled,
	brig.Internal:           http.StatusInternalServerError,
}

// Status returns the HTTP status of an error kind.
func Status(k brig.Kind) int {
	if s, ok := statuses[k]; ok {
		return s
	}
	return http.StatusInternalServerError
}
