package door

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds on what a client may keep a connection open for. There is none on
// the whole of a request: streams last as long as their programs.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// NewServer returns a server for h with the bounds that every door has. Its
// owner listens, serves and shuts it down.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
