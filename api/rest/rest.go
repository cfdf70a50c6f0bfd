// Package rest is the native HTTP API: JSON under /v1. A handler decodes a
// request, calls brig.Service once and encodes the response. It contains no
// business logic.
//
// One table (routes.go) contains all routes. The router and the OpenAPI
// document at /openapi.json are built from it.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/signin"
)

// Options configure the API. Service and Keys are required.
type Options struct {
	Service brig.Service
	Keys    httpapi.Keys
	// Registry collects the metrics of /metrics. Default: a new registry.
	Registry *prometheus.Registry
	// Log is the log for the operator. Default: no log.
	Log *slog.Logger
	// Hosts are the host names and addresses of the server, in addition to the
	// loopback addresses.
	Hosts   []string
	Version string
	// Ready returns an error if the server cannot accept work. Default: no
	// error.
	Ready func(context.Context) error
	// SignIn lets people sign in with an identity provider. Default: only API
	// keys are accepted.
	SignIn *signin.Provider
	// Builds builds the templates of tenants. Default: the server builds none.
	Builds brig.TemplateService
	// LimitRange appears in the OpenAPI document. The Service enforces it.
	LimitRange brig.LimitRange
}

// api serves the routes. Each kind of resource has a type with its handlers.
type api struct{ *base }

// base is the common part of all handlers.
type base struct {
	Options
	keyring *httpapi.Keyring
	openapi []byte
	// loginStarts limits how often an address starts logins. codeExchanges
	// limits how often an address makes the server exchange a code with the
	// identity provider.
	loginStarts, codeExchanges *httpapi.Limit
}

func newAPI(o Options) *api {
	b := &base{Options: o, keyring: httpapi.NewKeyring(o.Keys), loginStarts: httpapi.NewLimit(10, 100), codeExchanges: httpapi.NewLimit(5, 50)}
	return &api{b}
}

// New returns the API.
func New(o Options) http.Handler {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	metrics, err := httpapi.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("failed to register the HTTP metrics", "error", err)
	}
	a := newAPI(o)
	if a.openapi, err = document(a.routes(), o); err != nil {
		o.Log.Warn("there is no /openapi.json", "error", err)
	}
	return httpapi.Wrap(o.Log, metrics, httpapi.Guard(o.Hosts, signin.CallbackPath, a.router()))
}

func (a *api) router() http.Handler {
	mux := chi.NewRouter()
	for _, rt := range a.routes() {
		mux.Method(rt.method, rt.pattern, a.serve(rt))
		if rt.method == http.MethodGet && !rt.longLived {
			mux.Method(http.MethodHead, rt.pattern, a.serve(rt))
		}
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		httpapi.Fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path").
			WithHint("GET /openapi.json lists the routes"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		allow := strings.Join(allowedMethods(mux, r), ", ")
		w.Header().Set("Allow", allow)
		httpapi.Fail(w, r, httpapi.WithStatus(http.StatusMethodNotAllowed,
			brig.Errorf(brig.InvalidArgument, "this path does not take this method").WithHint("use %s", allow)))
	})
	return mux
}

// allowedMethods returns the methods that r's path supports.
func allowedMethods(mux chi.Routes, r *http.Request) []string {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if mux.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
		}
	}
	return methods
}

// authorize authorizes r for the route, and sets the size limit of its body, before the
// body is read. Streamed bodies of archives and files have their own limits.
func (a *api) authorize(rt route, r *http.Request) (*http.Request, error) {
	if rt.op.Name == "" {
		return r, nil // the route does not read the body
	}
	name := ""
	if rt.op.Sandbox {
		name = param(r, "name")
	}
	if err := httpapi.Check(r, a.Service, name, rt.op); err != nil {
		return r, err
	}
	if rt.maxBody > 0 {
		r = httpapi.WithMaxBody(r, rt.maxBody)
	}
	return r, nil
}

// serve returns a handler for a route that authenticates the request,
// authorizes it and checks its query.
func (a *api) serve(rt route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := a.authorize(rt, r)
		if err != nil {
			httpapi.Fail(w, r, err)
			return
		}
		q, err := rt.read(r)
		if err == nil {
			err = rt.serve(w, r, q)
		}
		if err != nil {
			httpapi.Fail(w, r, withRequestField(err))
		}
	})
	if !rt.public {
		h = httpapi.Auth(a.keyring, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpapi.RecordRoute(r, rt.pattern)
		h.ServeHTTP(w, r)
	})
}

// serve calls the handler of a route. A route with large responses waits for its turn.
func (rt route) serve(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if rt.large {
		done, err := httpapi.LeaseOf(r.Context()).WaitForTurn(r.Context())
		if err != nil {
			return err
		}
		defer done()
	}
	return rt.handle(w, r, q)
}

// param returns a path parameter by name, unescaped. The router leaves it
// escaped if the URL has a RawPath.
func param(r *http.Request, name string) string {
	s := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		if plain, err := url.PathUnescape(s); err == nil {
			s = plain
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
