// Package rest is the native HTTP door: JSON over /v1. A handler decodes a
// request, calls brig.Service once and encodes the answer; it decides nothing.
//
// The routes stand in one table (routes.go), from which both the router and
// the OpenAPI document at /openapi.json are made.
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
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/signin"
)

// Options are what the door is made of. Service and Keys are needed.
type Options struct {
	Service brig.Service
	Keys    door.Keys
	// Registry collects the metrics that /metrics shows. Default: a new one.
	Registry *prometheus.Registry
	// Log is for the operator. Default: none.
	Log *slog.Logger
	// Hosts are the names and addresses by which clients may know the
	// server, beside the loopback ones.
	Hosts   []string
	Version string
	// Ready says whether the server can take work. Default: it can.
	Ready func(context.Context) error
	// SignIn lets people in by an identity provider. Default: only keys do.
	SignIn *signin.Provider
	// Bounds are shown in the OpenAPI document; the Service enforces them.
	Bounds brig.Bounds
}

// api serves the routes.
type api struct {
	Options
	ring    *door.Keyring
	openapi []byte
}

// New returns the door.
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
	metrics, err := door.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("HTTP is not measured", "error", err)
	}
	a := &api{Options: o, ring: door.NewKeyring(o.Keys)}
	if a.openapi, err = document(a.routes(), o); err != nil {
		o.Log.Warn("there is no /openapi.json", "error", err)
	}
	return door.Wrap(o.Log, metrics, door.Guard(o.Hosts, signin.CallbackPath, a.router()))
}

func (a *api) router() http.Handler {
	mux := chi.NewRouter()
	for _, rt := range a.routes() {
		mux.Method(rt.method, rt.pattern, a.serve(rt))
		if rt.method == http.MethodGet && !rt.lasting {
			mux.Method(http.MethodHead, rt.pattern, a.serve(rt))
		}
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		door.Fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path").
			WithHint("GET /openapi.json lists the routes"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		allow := strings.Join(allowed(mux, r), ", ")
		w.Header().Set("Allow", allow)
		door.Fail(w, r, door.WithStatus(http.StatusMethodNotAllowed,
			brig.Errorf(brig.InvalidArgument, "this path does not take this method").WithHint("use %s", allow)))
	})
	return mux
}

// allowed lists the methods that r's path takes.
func allowed(mux chi.Routes, r *http.Request) []string {
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

// serve is what all routes share: who is calling, and a query that the route
// knows.
func (a *api) serve(rt route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := rt.read(r)
		if err == nil {
			err = rt.handle(w, r, q)
		}
		if err != nil {
			door.Fail(w, r, inRequestTerms(err))
		}
	})
	if !rt.open {
		h = door.Auth(a.ring, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.Route(r, rt.pattern)
		h.ServeHTTP(w, r)
	})
}

// param returns a part of the path by name. The router leaves it escaped when
// its escapes were not needless.
func param(r *http.Request, name string) string {
	s := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		if plain, err := url.PathUnescape(s); err == nil {
			s = plain
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
