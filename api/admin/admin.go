// Package admin is the API for administrators who migrate from RAGFlow. It
// serves RAGFlow's sandbox settings in two dialects, each with its own response
// format: on the routes that RAGFlow ships (/api/v1/admin/sandbox), and on the
// routes of its specification (/api/admin/sandbox). Both use
// brig.ProviderService. Brig's own routes are /v1/providers.
//
// The API follows RAGFlow's source, api/apps/admin and agent/sandbox, and its
// specification of the sandbox settings page.
package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/exactjson"
)

// Prefixes of the two dialects.
const (
	shippedPrefix = "/api/v1/admin"
	specPrefix    = "/api/admin"
)

// Options configure the API.
type Options struct {
	Service brig.ProviderService
	Keys    httpapi.Keys
	// Log is the log for the operator.
	Log *slog.Logger
	// Hosts are the host names of the server, in addition to the loopback
	// names.
	Hosts []string
}

// Matches reports whether a request is for this API.
func Matches(r *http.Request) bool {
	for _, p := range []string{shippedPrefix, specPrefix} {
		if strings.HasPrefix(r.URL.Path, p+"/") {
			return true
		}
	}
	return false
}

// New returns the API.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ring := httpapi.NewKeyring(o.Keys)
	mux := chi.NewRouter()
	for prefix, d := range map[string]dialect{shippedPrefix: &shipped{o.Service}, specPrefix: &spec{o.Service}} {
		for _, r := range d.routes() {
			mux.Method(r.method, prefix+r.path, requireActor(d, ring, newHandler(d, o.Service, r)))
		}
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		chooseDialect(r).writeError(w, brig.Errorf(brig.NotFound, "there is nothing at this path").WithHint("Brig's own routes are /v1/providers"))
	})
	return httpapi.Wrap(o.Log, nil, httpapi.Guard(o.Hosts, "", mux))
}

// dialect is one of the two formats of the API.
type dialect interface {
	routes() []route
	// answer writes the result of a handler, and fail writes an error.
	writeResponse(w http.ResponseWriter, v any)
	writeError(w http.ResponseWriter, err error)
}

// route maps a method and a path of a dialect to a handler.
type route struct {
	method, path string
	op           brig.Op // operation that is authorized before the body is read
	handle       func(r *http.Request, body []byte) (any, error)
}

func chooseDialect(r *http.Request) dialect {
	if strings.HasPrefix(r.URL.Path, shippedPrefix+"/") {
		return &shipped{}
	}
	return &spec{}
}

func newHandler(d dialect, service brig.ProviderService, rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		err := httpapi.Check(r, service, "", rt.op)
		if err == nil {
			body, err = httpapi.ReadDocument(w, r, httpapi.SmallBody)
		}
		if err != nil {
			d.writeError(w, err)
			return
		}
		v, err := rt.handle(r, body)
		if err != nil {
			httpapi.Log(r, err)
			d.writeError(w, err)
			return
		}
		d.writeResponse(w, v)
	})
}

// requireActor returns a handler that passes a request on with its actor in
// the context. RAGFlow sends its token without "Bearer".
func requireActor(d dialect, ring *httpapi.Keyring, next http.Handler) http.Handler {
	in := httpapi.AuthOr(ring, func(w http.ResponseWriter, _ *http.Request, err error) { d.writeError(w, err) }, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization"); strings.HasPrefix(auth, httpapi.KeyPrefix) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+auth)
		}
		in.ServeHTTP(w, r)
	})
}

// read decodes the body of a request. It ignores unknown fields, as RAGFlow
// does.
func read(body []byte, into any) error {
	if err := exactjson.Unmarshal(body, into); err != nil {
		return brig.InvalidField("body", "the JSON does not have the expected structure").WithHint(`for example {"provider_type":"self_managed","config":{}}`).Because(err)
	}
	return nil
}

// providerID returns the id of the provider in the path of r.
func providerID(r *http.Request) string { return chi.URLParam(r, "id") }

// find returns a provider by its id.
func find(list []brig.ProviderInfo, id string) (*brig.ProviderInfo, error) {
	for i := range list {
		if list[i].ID == id {
			return &list[i], nil
		}
	}
	return nil, unknownTenantError(id)
}

func unknownTenantError(id string) error {
	return brig.Errorf(brig.InvalidConfig, "Unknown provider type: %s", brig.Clip(id, 63)).WithHint("list the providers")
}

// findActive returns the active provider, or nil if there is none.
func findActive(list []brig.ProviderInfo) *brig.ProviderInfo {
	for i := range list {
		if list[i].Active {
			return &list[i]
		}
	}
	return nil
}

// defaults returns the defaults of all fields, overridden by the configured
// values.
func defaults(p *brig.ProviderInfo) (map[string]any, error) {
	out := map[string]any{}
	for _, f := range p.Fields {
		if !f.ReadOnly && f.Default != nil {
			out[f.Name] = f.Default
		}
	}
	if len(p.Config) > 0 {
		if err := json.Unmarshal(p.Config, &out); err != nil {
			return nil, err
		}
	}
	return out, nil
}
