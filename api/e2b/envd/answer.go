package envd

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/brig-run/brig"
)

// answer sends v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a disconnected client needs no response
}

// errorResponse is the body of every error response.
type errorResponse struct {
	Sandbox string `json:"sandboxId,omitempty"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func writeError(w http.ResponseWriter, status int, message string) {
	answer(w, status, errorResponse{Code: status, Message: message})
}

// fail responds with err. name is the file of the request, or empty if the
// request has no file.
func (e *Envd) fail(w http.ResponseWriter, r *http.Request, name string, err error) {
	if e.causedByEnd(r.Context(), err) {
		answer(w, http.StatusBadGateway, errorResponse{Sandbox: callOf(r.Context()).box.ID, Code: http.StatusBadGateway, Message: gone})
		return
	}
	e.logInternal(r.Context(), err)
	seen := brig.AsError(err)
	message := errorText(seen)
	if seen.Kind == brig.NotFound && name != "" {
		message = "path '" + name + "' does not exist"
	}
	writeError(w, status(seen), message)
}

// status maps every error kind to an HTTP status.
func status(err *brig.Error) int {
	if diskFull(err) {
		return http.StatusInsufficientStorage
	}
	switch err.Kind {
	case brig.NotFound:
		return http.StatusNotFound
	case brig.InvalidArgument:
		return http.StatusBadRequest
	case brig.AlreadyExists, brig.FailedPrecondition, brig.InvalidConfig:
		return http.StatusConflict
	case brig.RateLimited, brig.OutOfMemory:
		return http.StatusTooManyRequests
	case brig.Unavailable, brig.NotInitialized, brig.ConnectionFailed:
		return http.StatusServiceUnavailable
	case brig.PermissionDenied, brig.PolicyBlocked:
		return http.StatusForbidden
	case brig.Unauthenticated:
		return http.StatusUnauthorized
	case brig.Timeout:
		return http.StatusGatewayTimeout
	case brig.Unimplemented:
		return http.StatusNotImplemented
	case brig.Canceled:
		return 499
	}
	return http.StatusInternalServerError // brig.Internal, brig.CreationFailed
}
