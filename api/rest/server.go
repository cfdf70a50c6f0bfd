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
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// serverAPI has the handlers for the server: templates, pool, capabilities, alerts, health and metrics.
type serverAPI struct{ *base }

// routes returns the routes of the server.
func (a serverAPI) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{id: "attest-sandbox", method: post, pattern: "/v1/sandboxes/{name}/attest", tag: "sandboxes", summary: "Verify the enforcement of a sandbox",
			handle: a.attest, op: brig.OpAttest, in: v1.AttestRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "templates", method: get, pattern: "/v1/templates", tag: "templates", summary: "List templates",
			handle: a.templates, out: v1.Templates{}},
		{id: "capabilities", method: get, pattern: "/v1/capabilities", tag: "server", summary: "Get the enforcement capabilities",
			handle: a.capabilities, out: v1.Capabilities{}},
		{id: "alerts", method: get, pattern: "/v1/alerts", tag: "server", summary: "List alerts, the most severe first",
			handle: a.alerts, out: v1.Alerts{}},
		{id: "version", method: get, pattern: "/v1/version", tag: "server", summary: "Get the server's version",
			handle: a.version, out: v1.Version{}},
		{id: "healthz", method: get, pattern: "/healthz", tag: "server", summary: "Check that the server is alive",
			handle: a.healthz, public: true, out: v1.Health{}},
		{id: "readyz", method: get, pattern: "/readyz", tag: "server", summary: "Check that the server can take work",
			handle: a.readyz, public: true, out: v1.Health{}},
		{id: "openapi", method: get, pattern: "/openapi.json", tag: "server", summary: "Get this document",
			handle: a.serveOpenAPI, public: true, out: map[string]any{}},
		{id: "metrics", method: get, pattern: "/metrics", tag: "server", summary: "Get metrics in Prometheus's format",
			handle: a.metrics, text: true},
	}
}

// readyTimeout limits how long /readyz waits for Ready.
const readyTimeout = 5 * time.Second

func (a serverAPI) version(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return httpapi.WriteJSON(w, http.StatusOK, v1.Version{Version: a.Version})
}

func (a serverAPI) healthz(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return httpapi.WriteJSON(w, http.StatusOK, v1.Health{Status: "ok"})
}

func (a serverAPI) readyz(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := a.Ready(ctx); err != nil {
		// The caller is not authenticated, so the reason appears only in the
		// log.
		return brig.Errorf(brig.Unavailable, "the server is not ready").WithHint("see the server's log").Because(err)
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.Health{Status: "ready"})
}

func (a serverAPI) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	if len(a.openapi) == 0 {
		return brig.Errorf(brig.Internal, "there is no document")
	}
	w.Header().Set("Content-Type", v1.JSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.openapi)))
	if _, err := w.Write(a.openapi); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

func (a serverAPI) metrics(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if brig.ActorFrom(r.Context()).Role < brig.Operator {
		return brig.Errorf(brig.PermissionDenied, "metrics cover all tenants, so only operators may read them").WithHint("use an operator's key")
	}
	// An error of one metric must not hide the other metrics.
	promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(a.Log.Handler(), slog.LevelError),
	}).ServeHTTP(w, r)
	return nil
}

func (a serverAPI) alerts(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Alerts(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromAlerts(list))
}

func (a serverAPI) capabilities(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	c, err := a.Service.Capabilities(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromCapabilities(c))
}

func (a serverAPI) attest(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := httpapi.ReadJSON(w, r, &v1.AttestRequest{}, true); err != nil {
		return err
	}
	s, err := a.Service.Attest(r.Context(), param(r, "name"))
	return writeSandbox(w, s, err)
}

func (a serverAPI) templates(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Templates(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromTemplates(list))
}

func fromTemplates(list []brig.Template) v1.Templates {
	out := v1.Templates{Templates: []v1.Template{}}
	for _, t := range list {
		out.Templates = append(out.Templates, v1.FromTemplate(t))
	}
	return out
}
