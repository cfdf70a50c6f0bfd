// Package admin is the door for administrators who come from RAGFlow: its
// sandbox settings, on the routes that it ships (/api/v1/admin/sandbox) and on
// those that its specification has (/api/admin/sandbox), each with the answers
// of its own. What they say and change is brig.ProviderService; Brig's own
// routes are /v1/providers.
//
// The facts are of RAGFlow's source, api/apps/admin and agent/sandbox, and of
// its specification of the sandbox settings page.
package admin

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// The prefixes of the two dialects.
const (
	shippedPrefix = "/api/v1/admin"
	specPrefix    = "/api/admin"
)

// maxBody bounds what a request says.
const maxBody = 4 << 20

// Options are what the door is made of.
type Options struct {
	Service brig.Service
	Keys    door.Keys
	// Log is for the operator.
	Log *slog.Logger
	// Hosts are the names by which clients may know the server.
	Hosts []string
}

// Wants reports whether a request is for this door.
func Wants(r *http.Request) bool {
	for _, p := range []string{shippedPrefix, specPrefix} {
		if strings.HasPrefix(r.URL.Path, p+"/") {
			return true
		}
	}
	return false
}

// New returns the door.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ring := door.NewKeyring(o.Keys)
	mux := chi.NewRouter()
	for prefix, d := range map[string]dialect{shippedPrefix: &shipped{o.Service}, specPrefix: &spec{o.Service}} {
		for _, r := range d.routes() {
			mux.Method(r.method, prefix+r.path, authenticated(d, ring, handler(d, r.handle)))
		}
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		dialectOf(r).fail(w, brig.Errorf(brig.NotFound, "there is nothing at this path").WithHint("Brig's own routes are /v1/providers"))
	})
	return door.Wrap(o.Log, nil, door.Guard(o.Hosts, "", mux))
}

// dialect is how one of the two speaks.
type dialect interface {
	routes() []route
	// answer writes what a handler returned, fail an error.
	answer(w http.ResponseWriter, v any)
	fail(w http.ResponseWriter, err error)
}

// route is a row of a dialect.
type route struct {
	method, path string
	handle       func(r *http.Request, body []byte) (any, error)
}

func dialectOf(r *http.Request) dialect {
	if strings.HasPrefix(r.URL.Path, shippedPrefix+"/") {
		return &shipped{}
	}
	return &spec{}
}

func handler(d dialect, f func(*http.Request, []byte) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			d.fail(w, door.BodyError(err))
			return
		}
		v, err := f(r, body)
		if err != nil {
			door.Log(r, err)
			d.fail(w, err)
			return
		}
		d.answer(w, v)
	})
}

// authenticated lets a request through with its actor. RAGFlow sends its token
// without "Bearer".
func authenticated(d dialect, ring *door.Keyring, next http.Handler) http.Handler {
	in := door.AuthOr(ring, func(w http.ResponseWriter, _ *http.Request, err error) { d.fail(w, err) }, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization"); strings.HasPrefix(auth, door.KeyPrefix) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+auth)
		}
		in.ServeHTTP(w, r)
	})
}

// read decodes what a request says. Fields that nobody knows are let pass, as
// RAGFlow lets them.
func read(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return brig.InvalidField("body", "it is not the JSON that is expected here").WithHint(`for example {"provider_type":"self_managed","config":{}}`).Because(err)
	}
	return nil
}

// id is a provider's, as a request calls it.
func id(r *http.Request) string { return chi.URLParam(r, "id") }

// find finds a provider by its id.
func find(list []brig.ProviderInfo, id string) (*brig.ProviderInfo, error) {
	for i := range list {
		if list[i].ID == id {
			return &list[i], nil
		}
	}
	return nil, unknown(id)
}

func unknown(id string) error {
	return brig.Errorf(brig.InvalidConfig, "Unknown provider type: %s", brig.Clip(id, 63)).WithHint("list the providers")
}

// active finds the active provider.
func active(list []brig.ProviderInfo) *brig.ProviderInfo {
	for i := range list {
		if list[i].Active {
			return &list[i]
		}
	}
	return nil
}

// defaults are the values of the fields that can be set, under what is
// configured.
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
