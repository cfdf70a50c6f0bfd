package e2b

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// route is one row of the control plane.
type route struct {
	method, pattern string
	handle          func(w http.ResponseWriter, r *http.Request) error
}

// routes is the only list of what the control plane has.
func (d *Door) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	return []route{
		{post, "/sandboxes", d.createV1},
		{post, "/v2/sandboxes", d.createV2},
		{get, "/sandboxes", d.listV1},
		{get, "/v2/sandboxes", d.listV2},
		{get, "/sandboxes/metrics", d.allMetrics},
		{get, "/sandboxes/{id}", d.get},
		{del, "/sandboxes/{id}", d.remove},
		{post, "/sandboxes/{id}/timeout", d.timeout},
		{post, "/sandboxes/{id}/refreshes", d.refresh},
		{post, "/sandboxes/{id}/connect", d.connect},
		{post, "/v2/sandboxes/{id}/connect", d.connect},
		{get, "/sandboxes/{id}/metrics", d.metrics},
		{get, "/sandboxes/{id}/logs", d.logsV1},
		{get, "/v2/sandboxes/{id}/logs", d.logsV2},

		{get, "/templates", d.listTemplates},
		{get, "/v2/templates", d.listTemplates},
		{get, "/templates/aliases/{alias}", d.alias},
		{get, "/templates/{template}", d.template},
		{get, "/teams", d.teams},

		{post, "/sandboxes/{id}/pause", missing("pausing a sandbox")},
		{post, "/sandboxes/{id}/resume", missing("resuming a sandbox")},
		{post, "/sandboxes/{id}/snapshots", missing("taking a snapshot")},
		{post, "/sandboxes/{id}/fork", missing("forking a sandbox")},
		{http.MethodPut, "/sandboxes/{id}/network", d.network},
		{get, "/snapshots", missing("listing snapshots")},
		{post, "/v3/templates", missing("building templates")},
		{post, "/v2/templates", missing("building templates")},
		{post, "/templates", missing("building templates")},
		{post, "/templates/{template}", missing("building templates")},
		{get, "/templates/{template}/files/{hash}", missing("building templates")},
		{post, "/templates/{template}/builds/{build}", missing("building templates")},
		{post, "/v2/templates/{template}/builds/{build}", missing("building templates")},
		{get, "/templates/{template}/builds/{build}/status", missing("building templates")},
		{get, "/templates/{template}/builds/{build}/logs", missing("building templates")},
		{post, "/templates/tags", missing("tagging templates")},
		{del, "/templates/tags", missing("tagging templates")},
		{get, "/templates/{template}/tags", missing("tagging templates")},
		{del, "/templates/{template}", d.removeTemplate},
		{http.MethodPatch, "/templates/{template}", missing("publishing templates")},
		{http.MethodPatch, "/v2/templates/{template}", missing("publishing templates")},
		{get, "/teams/{team}/metrics", missing("measuring a team")},
		{get, "/teams/{team}/metrics/max", missing("measuring a team")},
		{"", "/volumes", missing("the volume API")},
		{"", "/volumes/*", missing("the volume API")},
		{"", "/volumecontent/*", missing("the volume API")},
		{"", "/secrets", missing("the secret API")},
		{"", "/secrets/*", missing("the secret API")},
		{"", "/events/*", missing("listing lifecycle events")},
	}
}

// missing refuses what there is not. To take it and do nothing would be a lie.
func missing(what string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error { return errMissing(what) }
}

func errMissing(what string) error {
	return brig.Errorf(brig.Unimplemented, "%s is not supported by this server", what)
}

func (d *Door) router() http.Handler {
	mux := chi.NewRouter()
	for _, rt := range d.routes() {
		if rt.method == "" {
			mux.Handle(rt.pattern, d.keyed(rt))
			continue
		}
		mux.Method(rt.method, rt.pattern, d.keyed(rt))
	}
	mux.Get("/health", func(w http.ResponseWriter, r *http.Request) {
		door.Route(r, "e2b:/health")
		d.write(w, r, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed(mux, r), ", "))
		d.fail(w, r, door.WithStatus(http.StatusMethodNotAllowed,
			brig.Errorf(brig.InvalidArgument, "this path does not take this method")))
	})
	return mux
}

// keyed is what all routes share: whose key it is, and how errors look.
func (d *Door) keyed(rt route) http.Handler {
	keyed := d.ring.Keyed(d.authenticate, rt.handle, d.fail)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.Route(r, "e2b:"+rt.pattern)
		keyed(w, r)
	})
}

// allowed lists the methods that r's path takes.
func allowed(mux chi.Routes, r *http.Request) (methods []string) {
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if mux.Match(chi.NewRouteContext(), m, r.URL.EscapedPath()) {
			methods = append(methods, m)
		}
	}
	return methods
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
