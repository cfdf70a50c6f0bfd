package e2b

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// controlPlane serves the routes of the control plane to clients with an API key.
type controlPlane struct {
	*env
	templates *templates
	builds    *builds
	volumes   *volumes
	events    *events
	snapshots *snapshots
	sandboxes *sandboxes
	copies    *copies
	leases    *sandboxHandlers
	telemetry *telemetry
	handler   http.Handler
}

// route is one route of the control plane.
type route struct {
	method, pattern string
	handle          func(w http.ResponseWriter, r *http.Request) error
}

// routes returns all routes of the control plane. The API serves no other
// routes there.
func (c *controlPlane) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	return []route{
		{post, "/sandboxes", c.sandboxes.createV1},
		{post, "/v2/sandboxes", c.sandboxes.createV2},
		{get, "/sandboxes", httpapi.InTurn(c.sandboxes.listV1)},
		{get, "/v2/sandboxes", httpapi.InTurn(c.sandboxes.listV2)},
		{get, "/sandboxes/metrics", c.telemetry.allMetrics},
		{get, "/sandboxes/{id}", c.sandboxes.get},
		{del, "/sandboxes/{id}", c.sandboxes.remove},
		{post, "/sandboxes/{id}/timeout", c.leases.timeout},
		{post, "/sandboxes/{id}/refreshes", c.leases.refresh},
		{post, "/sandboxes/{id}/connect", c.leases.connect},
		{post, "/v2/sandboxes/{id}/connect", c.leases.connect},
		{get, "/sandboxes/{id}/metrics", c.telemetry.metrics},
		{get, "/sandboxes/{id}/logs", httpapi.InTurn(c.telemetry.logsV1)},
		{get, "/v2/sandboxes/{id}/logs", httpapi.InTurn(c.telemetry.logsV2)},

		{get, "/templates", httpapi.InTurn(c.checked(brig.OpTemplates, c.templates.list))},
		{get, "/v2/templates", httpapi.InTurn(c.checked(brig.OpTemplates, c.templates.list))},
		{get, "/templates/aliases/{alias}", c.checked(brig.OpTemplates, c.templates.getAlias)},
		{get, "/templates/{template}", httpapi.InTurn(c.checked(brig.OpTemplates, c.templates.get))},
		{get, "/teams", c.teams},

		{post, "/sandboxes/{id}/pause", c.leases.pause},
		{post, "/sandboxes/{id}/resume", c.leases.resume},
		{post, "/sandboxes/{id}/snapshots", c.copies.snapshot},
		{post, "/sandboxes/{id}/fork", c.copies.fork},
		{http.MethodPut, "/sandboxes/{id}/network", c.sandboxes.setNetwork},
		{get, "/snapshots", httpapi.InTurn(c.snapshots.list)},
		{post, "/v3/templates", c.builds.handle(c.builds.request)},
		{post, "/v2/templates", c.builds.handle(c.builds.request)},
		{post, "/templates", unsupported("the first version of building templates")},
		{post, "/templates/{template}", unsupported("the first version of building templates")},
		{get, "/templates/{template}/files/{hash}", c.builds.reads(brig.OpUploadFiles, c.builds.fileLink)},
		{post, "/templates/{template}/builds/{build}", unsupported("the first version of building templates")},
		{post, "/v2/templates/{template}/builds/{build}", c.builds.handle(c.builds.start)},
		{get, "/templates/{template}/builds/{build}/status", httpapi.InTurn(c.builds.reads(brig.OpGetBuild, c.builds.status))},
		{get, "/templates/{template}/builds/{build}/logs", httpapi.InTurn(c.builds.reads(brig.OpGetBuild, c.builds.logs))},
		{post, "/templates/tags", c.builds.handle(c.builds.assignTags)},
		{del, "/templates/tags", c.builds.handle(c.builds.removeTags)},
		{get, "/templates/{template}/tags", c.builds.reads(brig.OpGetTemplate, c.builds.listTags)},
		{del, "/templates/{template}", c.templates.remove},
		{http.MethodPatch, "/templates/{template}", c.checked(brig.OpTagTemplate, c.templates.update(1))},
		{http.MethodPatch, "/v2/templates/{template}", c.checked(brig.OpTagTemplate, c.templates.update(2))},
		{get, "/teams/{team}/metrics", c.checked(brig.OpList, c.telemetry.teamMetrics)},
		{get, "/teams/{team}/metrics/max", c.checked(brig.OpList, c.telemetry.maxTeamMetrics)},
		{post, "/volumes", c.volumes.create},
		{get, "/volumes", httpapi.InTurn(c.volumes.list)},
		{get, "/volumes/{volume}", c.volumes.get},
		{del, "/volumes/{volume}", c.volumes.remove},
		{"", "/secrets", unsupported("the secret API")},
		{"", "/secrets/*", unsupported("the secret API")},
		{get, "/events/sandboxes", httpapi.InTurn(c.events.list)},
		{get, "/events/sandboxes/{id}", httpapi.InTurn(c.events.list)},
		{post, "/events/webhooks", c.events.createHook},
		{get, "/events/webhooks", c.events.listHooks},
		{get, "/events/webhooks/{hook}", c.events.getHook},
		{http.MethodPatch, "/events/webhooks/{hook}", c.events.changeHook},
		{del, "/events/webhooks/{hook}", c.events.removeHook},
	}
}

// bodies maps every route that reads a body to the operation that must be
// allowed first.
var bodies = map[string]brig.Op{
	"POST /v3/templates":                           brig.OpRequestBuild,
	"POST /v2/templates":                           brig.OpRequestBuild,
	"POST /v2/templates/{template}/builds/{build}": brig.OpStartBuild,
	"POST /events/webhooks":                        brig.OpCreateWebhook,
	"PATCH /events/webhooks/{hook}":                brig.OpUpdateWebhook,
	"PATCH /templates/{template}":                  brig.OpTagTemplate,
	"PATCH /v2/templates/{template}":               brig.OpTagTemplate,
	"POST /volumes":                                brig.OpCreateVolume,
	"POST /templates/tags":                         brig.OpTagTemplate,
	"DELETE /templates/tags":                       brig.OpUntagTemplate,
	"POST /sandboxes":                              brig.OpCreate,
	"POST /v2/sandboxes":                           brig.OpCreate,
	"POST /sandboxes/{id}/timeout":                 brig.OpExtend,
	"POST /sandboxes/{id}/refreshes":               brig.OpExtend,
	"POST /sandboxes/{id}/pause":                   brig.OpPause,
	"POST /sandboxes/{id}/resume":                  brig.OpResume,
	"POST /sandboxes/{id}/snapshots":               brig.OpFork,
	"POST /sandboxes/{id}/fork":                    brig.OpFork,
	"POST /sandboxes/{id}/connect":                 brig.OpGet,
	"POST /v2/sandboxes/{id}/connect":              brig.OpGet,
	"PUT /sandboxes/{id}/network":                  brig.OpSetEgress,
}

// authorized authorizes a request before its handler reads the body.
func (c *controlPlane) authorized(rt route) func(http.ResponseWriter, *http.Request) error {
	op, ok := bodies[rt.method+" "+rt.pattern]
	if !ok {
		return rt.handle // the handler reads no body
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		id := ""
		if op.Sandbox {
			id, _ = parseID(param(r, "id")) // an invalid id finds no sandbox
		}
		// The handler reports a missing sandbox before it reads the body.
		if err := httpapi.Check(r, c.Service, id, op); err != nil && brig.KindOf(err) != brig.NotFound {
			return err
		}
		return rt.handle(w, r)
	}
}

// unsupported returns a handler that rejects an unsupported feature. Accepting
// the request without effect would be wrong.
func unsupported(what string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error { return errUnsupported(what) }
}

func errUnsupported(what string) error {
	return brig.Errorf(brig.Unimplemented, "%s is not supported by this server", what)
}

func (c *controlPlane) router() http.Handler {
	mux := chi.NewRouter()
	for _, rt := range c.routes() {
		if rt.method == "" {
			mux.Handle(rt.pattern, c.keyed(rt))
			continue
		}
		mux.Method(rt.method, rt.pattern, c.keyed(rt))
	}
	// Clients send the files of a build without a key, to the URL that they got with one.
	upload := c.keyring.Keyed(c.builds.authenticateUpload, c.builds.handle(c.builds.putFiles), c.fail)
	mux.Put("/templates/{template}/files/{hash}", func(w http.ResponseWriter, r *http.Request) {
		httpapi.RecordRoute(r, "e2b:/templates/{template}/files/{hash}")
		upload(w, r)
	})
	// The files of a volume need the volume's token instead of a key.
	for _, rt := range c.volumes.contentRoutes() {
		mux.Method(rt.method, rt.pattern, c.volumes.content(rt))
	}
	mux.Get("/health", func(w http.ResponseWriter, r *http.Request) {
		httpapi.RecordRoute(r, "e2b:/health")
		c.write(w, r, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allowedMethods(mux, r), ", "))
		c.fail(w, r, httpapi.WithStatus(http.StatusMethodNotAllowed,
			brig.Errorf(brig.InvalidArgument, "this path does not take this method")))
	})
	return mux
}

// keyed wraps a route with authentication and error handling.
func (c *controlPlane) keyed(rt route) http.Handler {
	keyed := c.keyring.Keyed(c.authenticate, c.authorized(rt), c.fail)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpapi.RecordRoute(r, "e2b:"+rt.pattern)
		keyed(w, r)
	})
}

// allowedMethods returns the methods that r's path supports.
func allowedMethods(mux chi.Routes, r *http.Request) (methods []string) {
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if mux.Match(chi.NewRouteContext(), m, r.URL.EscapedPath()) {
			methods = append(methods, m)
		}
	}
	return methods
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
