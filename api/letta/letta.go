// Package letta is the door of Letta's tool execution, as its clients know it:
// configurations of sandboxes and their variables (/v1/sandbox-config), and the
// run of a tool from its source (/v1/tools/run). An organization is a tenant.
//
// The facts are of Letta's source, letta/server/rest_api/routers/v1, and of the
// clients that are published.
package letta

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// Options are what the door is made of.
type Options struct {
	Service brig.ToolService
	Keys    door.Keys
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log is for the operator. Default: none.
	Log *slog.Logger
	// Hosts are the names by which clients may know the server.
	Hosts []string
	// Registry collects the metrics of the requests. Default: a new one.
	Registry *prometheus.Registry
}

// The paths of the door.
const (
	configs   = "/v1/sandbox-config"
	run       = "/v1/tools/run"
	agentTool = "/v1/agents/{agent_id}/tools/{tool_name}/run"
)

// Wants reports whether a request is for this door.
func Wants(r *http.Request) bool {
	p := r.URL.Path
	return p == run || p == run+"/" || p == configs || strings.HasPrefix(p, configs+"/") || strings.HasPrefix(p, "/v1/agents/")
}

// Door serves the protocol.
type Door struct {
	Options
	handler http.Handler
}

// New returns the door.
func New(o Options) *Door {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	metrics, err := door.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("letta: HTTP is not measured", "error", err)
	}
	d := &Door{Options: o}
	mux := chi.NewRouter()
	for _, r := range d.routes() {
		mux.Method(r.method, r.path, d.handle(r))
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path").WithHint("of Letta's interface there is %s and %s", configs, run))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, door.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "this path does not have the method %s", r.Method)))
	})
	// Letta's clients write some of the paths with a slash at their end.
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := strings.TrimSuffix(r.URL.Path, "/"); p != r.URL.Path {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = p, strings.TrimSuffix(r.URL.RawPath, "/")
		}
		mux.ServeHTTP(w, r)
	})
	in := door.AuthOr(door.NewKeyring(o.Keys), d.fail, plain)
	d.handler = door.Wrap(o.Log, metrics, door.Guard(o.Hosts, "", in))
	return d
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// route is one that the door serves.
type route struct {
	method, path string
	status       int
	f            func(r *http.Request, body []byte) (any, error)
}

func (d *Door) routes() []route {
	one := configs + "/{config}"
	return []route{
		{http.MethodPost, run, 200, d.run},
		{http.MethodPost, agentTool, 200, d.runOfAgent},
		{http.MethodPost, configs, 200, d.putConfig},
		{http.MethodGet, configs, 200, d.configs},
		{http.MethodPost, configs + "/e2b/default", 200, d.defaultConfig(brig.ToolE2B)},
		{http.MethodPost, configs + "/local/default", 200, d.defaultConfig(brig.ToolLocal)},
		{http.MethodPost, configs + "/local", 200, d.putLocal},
		{http.MethodPost, configs + "/local/recreate-venv", 200, d.renew},
		{http.MethodPatch, configs + "/environment-variable/{variable}", 200, d.changeVariable},
		{http.MethodDelete, configs + "/environment-variable/{variable}", http.StatusNoContent, d.removeVariable},
		{http.MethodPatch, one, 200, d.changeConfig},
		{http.MethodDelete, one, http.StatusNoContent, d.removeConfig},
		{http.MethodPost, one + "/environment-variable", 200, d.putVariable},
		{http.MethodGet, one + "/environment-variable", 200, d.variables},
	}
}
