// Package letta is the API of Letta's tool execution for Letta's clients. It
// supports configurations of sandboxes and their variables
// (/v1/sandbox-config), and running a tool from its source (/v1/tools/run). An
// organization is a tenant.
//
// The API follows Letta's source, letta/server/rest_api/routers/v1, and the
// published clients.
package letta

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// Options configure the API.
type Options struct {
	Service brig.ToolService
	Keys    httpapi.Keys
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Log is the log for the operator. Default: no log.
	Log *slog.Logger
	// Hosts are the host names of the server, in addition to the loopback
	// names.
	Hosts []string
	// Registry collects the request metrics. Default: a new registry.
	Registry *prometheus.Registry
}

// Paths of the API.
const (
	configs   = "/v1/sandbox-config"
	run       = "/v1/tools/run"
	agentTool = "/v1/agents/{agent_id}/tools/{tool_name}/run"
)

// Matches reports whether a request is for this API.
func Matches(r *http.Request) bool {
	p := r.URL.Path
	return p == run || p == run+"/" || p == configs || strings.HasPrefix(p, configs+"/") || strings.HasPrefix(p, "/v1/agents/")
}

// API serves Letta's tool execution protocol.
type API struct {
	Options
	handler http.Handler
}

// New returns the API.
func New(o Options) *API {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	metrics, err := httpapi.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("letta: failed to register the HTTP metrics", "error", err)
	}
	d := &API{Options: o}
	mux := chi.NewRouter()
	for _, r := range d.routes() {
		mux.Method(r.method, r.path, d.handle(r))
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path").WithHint("of Letta's interface there is %s and %s", configs, run))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, httpapi.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "this path does not have the method %s", r.Method)))
	})
	// Letta's clients send some of the paths with a trailing slash.
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := strings.TrimSuffix(r.URL.Path, "/"); p != r.URL.Path {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = p, strings.TrimSuffix(r.URL.RawPath, "/")
		}
		mux.ServeHTTP(w, r)
	})
	in := httpapi.AuthOr(httpapi.NewKeyring(o.Keys), d.fail, plain)
	d.handler = httpapi.Wrap(o.Log, metrics, httpapi.Guard(o.Hosts, "", in))
	return d
}

// ServeHTTP implements http.Handler.
func (d *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// route maps a method and a path to a handler.
type route struct {
	method, path string
	status       int
	op           brig.Op // operation that is authorized before the body is read
	f            func(r *http.Request, body []byte) (any, error)
}

func (d *API) routes() []route {
	one := configs + "/{config}"
	return []route{
		{http.MethodPost, run, 200, brig.OpRunTool, d.run},
		{http.MethodPost, agentTool, 200, brig.OpRunTool, d.runAgentTool},
		{http.MethodPost, configs, 200, brig.OpPutToolSetup, d.putConfig},
		{http.MethodGet, configs, 200, brig.OpToolSetups, d.listConfigs},
		{http.MethodPost, configs + "/e2b/default", 200, brig.OpPutToolSetup, d.defaultConfig(brig.ToolE2B)},
		{http.MethodPost, configs + "/local/default", 200, brig.OpPutToolSetup, d.defaultConfig(brig.ToolLocal)},
		{http.MethodPost, configs + "/local", 200, brig.OpPutToolSetup, d.putLocal},
		{http.MethodPost, configs + "/local/recreate-venv", 200, brig.OpRenewToolSetup, d.renew},
		{http.MethodPatch, configs + "/environment-variable/{variable}", 200, brig.OpChangeToolVariable, d.changeVariable},
		{http.MethodDelete, configs + "/environment-variable/{variable}", http.StatusNoContent, brig.OpRemoveToolVariable, d.removeVariable},
		{http.MethodPatch, one, 200, brig.OpPutToolSetup, d.changeConfig},
		{http.MethodDelete, one, http.StatusNoContent, brig.OpRemoveToolSetup, d.removeConfig},
		{http.MethodPost, one + "/environment-variable", 200, brig.OpPutToolVariable, d.putVariable},
		{http.MethodGet, one + "/environment-variable", 200, brig.OpToolVariables, d.listVariables},
	}
}
