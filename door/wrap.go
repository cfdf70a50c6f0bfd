package door

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/span"
)

// RequestID is the header of an answer that names the request in the log.
const RequestID = "X-Request-Id"

// recorder remembers what a handler has answered.
type recorder struct {
	http.ResponseWriter
	log    *slog.Logger
	id     string
	route  string
	status int
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

type recorderKey struct{}

// Wrap puts around a door's handler what every answer needs: an id, headers
// that forbid caching and guessing, metrics, a log line for what went wrong,
// and a 500 in our shape for a panic. It is the outermost handler; m may be
// nil.
func Wrap(log *slog.Logger, m *Metrics, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, log: log, id: rand.Text()[:16]}
		h := w.Header()
		h.Set(RequestID, rec.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		r = r.WithContext(context.WithValue(r.Context(), recorderKey{}, rec))
		hurry(w, r, strangerTimeout)
		done := m.begin(r)
		defer func() {
			if p := recover(); p != nil {
				log.ErrorContext(r.Context(), "handler panicked", "request", rec.id, "panic", p, "stack", string(debug.Stack()))
				if rec.status != 0 {
					Abort(rec)
				} else if err := WriteError(rec, brig.Errorf(brig.Internal, "panic")); err != nil {
					log.DebugContext(r.Context(), "answer panic", "request", rec.id, "error", err)
				}
			}
			done(rec.route, rec.status)
			noted(r, rec)
		}()
		next.ServeHTTP(rec, r)
	})
}

// Route tells the metrics which pattern of the router r has matched.
func Route(r *http.Request, pattern string) {
	if rec, ok := r.Context().Value(recorderKey{}).(*recorder); ok {
		rec.route = pattern
		span.From(r.Context()).Name(method(r.Method) + " " + pattern)
	}
}

// Fail answers with err, unless an answer has begun already, and logs what a
// caller is not told.
func Fail(w http.ResponseWriter, r *http.Request, err error) { fail(w, r, err) }

func fail(w http.ResponseWriter, r *http.Request, err error) {
	Log(r, err)
	rec, ok := r.Context().Value(recorderKey{}).(*recorder)
	if ok && rec.status != 0 {
		Abort(w)
		return
	}
	if werr := WriteError(w, err); werr != nil && ok {
		rec.log.DebugContext(r.Context(), "answer error", "request", rec.id, "error", werr)
	}
}

// Log writes err to the operator's log when it is the server's fault.
func Log(r *http.Request, err error) {
	rec, ok := r.Context().Value(recorderKey{}).(*recorder)
	if !ok || StatusOf(err) < 500 {
		return
	}
	rec.log.ErrorContext(r.Context(), "request failed", "request", rec.id,
		"method", r.Method, "path", r.URL.Path, "kind", string(brig.KindOf(err)), "error", err)
}

// Abort breaks the connection, so that a client cannot take an answer that
// was cut short for a whole one.
func Abort(w http.ResponseWriter) {
	// A deadline in the past makes the last write fail, and the server then
	// closes the connection; a writer that knows no deadlines has none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}
