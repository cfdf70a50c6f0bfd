package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// readyTimeout bounds how long /readyz waits for an answer.
const readyTimeout = 5 * time.Second

func (a *api) version(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return door.WriteJSON(w, http.StatusOK, wire.Version{Version: a.Version})
}

func (a *api) healthz(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return door.WriteJSON(w, http.StatusOK, wire.Health{Status: "ok"})
}

func (a *api) readyz(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := a.Ready(ctx); err != nil {
		// Whoever asks has shown no key, so the reason is for the log alone.
		return brig.Errorf(brig.Unavailable, "the server is not ready").WithHint("see the server's log").Because(err)
	}
	return door.WriteJSON(w, http.StatusOK, wire.Health{Status: "ready"})
}

func (a *api) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	if len(a.openapi) == 0 {
		return brig.Errorf(brig.Internal, "there is no document")
	}
	w.Header().Set("Content-Type", wire.JSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.openapi)))
	if _, err := w.Write(a.openapi); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if brig.ActorFrom(r.Context()).Role < brig.Operator {
		return brig.Errorf(brig.PermissionDenied, "metrics are of all tenants, and for operators").WithHint("use an operator's key")
	}
	// One figure that cannot be had must not hide all others.
	promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(a.Log.Handler(), slog.LevelError),
	}).ServeHTTP(w, r)
	return nil
}
