package httpapi

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

// RequestID is the response header with the id of the request in the log.
const RequestID = "X-Request-Id"

// recorder records the response of a handler.
type recorder struct {
	http.ResponseWriter
	log    *slog.Logger
	id     string
	route  string
	status int
	// refused delays a 429 response until its turn.
	refused func()
	writeDeadline
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if status == http.StatusTooManyRequests && r.status == 0 {
		r.refused()
	}
	defer r.arm()()
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
	return writeInParts(p, r.writePart)
}

type recorderKey struct{}

// Wrap adds to an API's handler the parts that every response needs: an id, and
// headers that forbid caching and content sniffing. It also records metrics,
// logs errors, delays refusals, and responds with 500 in Brig's format to a panic.
// It must be the outermost handler. m may be nil.
func Wrap(log *slog.Logger, m *Metrics, next http.Handler) http.Handler {
	pace := newRejectionLimiter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		rec := &recorder{ResponseWriter: w, log: log, id: rand.Text()[:16], refused: func() { pace.wait(ctx) }}
		rec.begin(w, LeaseOf(r.Context()).unread())
		defer rec.setFinal()
		h := w.Header()
		h.Set(RequestID, rec.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		r = r.WithContext(context.WithValue(r.Context(), recorderKey{}, rec))
		restrictBody(w, r)
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
			recordSpan(r, rec)
		}()
		next.ServeHTTP(rec, r)
	})
}

// RecordRoute reports the router pattern of r to the metrics.
func RecordRoute(r *http.Request, pattern string) {
	if rec, ok := r.Context().Value(recorderKey{}).(*recorder); ok {
		rec.route = pattern
		span.From(r.Context()).Name(methodLabel(r.Method) + " " + pattern)
	}
}

// Fail responds with err unless the response has already begun, and logs the
// details that the client does not receive.
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

// Log logs err for the operator if it is a server error.
func Log(r *http.Request, err error) {
	rec, ok := r.Context().Value(recorderKey{}).(*recorder)
	if !ok || StatusOf(err) < 500 || brig.KindOf(err) == brig.Unimplemented {
		return // an unsupported feature is not a failure
	}
	rec.log.ErrorContext(r.Context(), "request failed", "request", rec.id,
		"method", r.Method, "path", r.URL.Path, "kind", string(brig.KindOf(err)), "error", err)
}

// Abort closes the connection, so that a client cannot mistake a truncated
// response for a complete one.
func Abort(w http.ResponseWriter) {
	// A deadline in the past makes the last write fail, and the server then
	// closes the connection. A writer without deadlines ignores it.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}

// Time limits of a connection. A request as a whole has no time limit, because
// a stream lasts as long as its program.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// NewServer returns a server for h with the limits of every API. The caller
// provides the TCP or Unix socket listener, and serves and shuts down the
// server.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           rejectPeers(h),
		ConnContext:       withPeer,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
