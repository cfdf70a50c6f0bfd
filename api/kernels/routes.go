package kernels

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/exactjson"
)

// Specs of kernels.
const (
	Stateful  = "python3"
	Ephemeral = "python3-ephemeral"
)

// specs lists the specs of kernels.
var specs = []string{Stateful, Ephemeral}

// IsValidSpec reports whether a spec with that name exists.
func IsValidSpec(name string) bool { return slices.Contains(specs, name) }

// gatewayVersion is the version of Jupyter's API that this package implements.
const gatewayVersion = "2.14.2"

type route struct {
	method, pattern string
	handle          func(w http.ResponseWriter, r *http.Request) error
}

// routes returns all routes of the API. The API serves no other routes.
func (d *API) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{get, "/api", d.serveAbout},
		{get, "/api/", d.serveAbout},
		{get, "/api/kernelspecs", d.listSpecs},
		{get, "/api/kernelspecs/{spec}", d.getSpec},
		{get, "/api/kernels", httpapi.InTurn(d.listKernels)},
		{post, "/api/kernels", d.createKernel},
		{get, "/api/kernels/{id}", d.getKernel},
		{http.MethodDelete, "/api/kernels/{id}", d.newActionHandler(kernel.remove)},
		{post, "/api/kernels/{id}/interrupt", d.newActionHandler(kernel.interrupt)},
		{post, "/api/kernels/{id}/restart", d.restartKernel},
		{get, "/api/kernels/{id}/channels", d.serveChannels},
	}
}

func (d *API) router() http.Handler {
	mux := chi.NewRouter()
	for _, rt := range d.routes() {
		keyed := d.ring.Keyed(d.authenticate, rt.handle, d.fail)
		mux.MethodFunc(rt.method, rt.pattern, func(w http.ResponseWriter, r *http.Request) {
			httpapi.RecordRoute(r, "kernels:"+rt.pattern)
			keyed(w, r)
		})
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, brig.Errorf(brig.NotFound, "Not Found"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, httpapi.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "Method Not Allowed")))
	})
	return mux
}

func (d *API) serveAbout(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.WriteJSON(w, http.StatusOK, map[string]string{"version": gatewayVersion, "gateway_version": gatewayVersion})
}

// kernelspec is the description of a spec in Jupyter's format.
type kernelspec struct {
	Name string `json:"name"`
	Spec struct {
		Argv          []string          `json:"argv"`
		Env           map[string]string `json:"env"`
		DisplayName   string            `json:"display_name"`
		Language      string            `json:"language"`
		InterruptMode string            `json:"interrupt_mode"`
		Metadata      map[string]string `json:"metadata"`
	} `json:"spec"`
	Resources map[string]string `json:"resources"`
}

func specOf(name string) kernelspec {
	s := kernelspec{Name: name, Resources: map[string]string{}}
	s.Spec.Argv, s.Spec.Env, s.Spec.Metadata = []string{"python3"}, map[string]string{}, map[string]string{}
	s.Spec.Language, s.Spec.InterruptMode = "python", "message"
	s.Spec.DisplayName = "Python 3 (one sandbox)"
	if name == Ephemeral {
		s.Spec.DisplayName = "Python 3 (a fresh sandbox for each piece of code)"
	}
	return s
}

func (d *API) listSpecs(w http.ResponseWriter, _ *http.Request) error {
	all := map[string]kernelspec{}
	for _, name := range specs {
		all[name] = specOf(name)
	}
	return httpapi.WriteJSON(w, http.StatusOK, map[string]any{"default": d.Default, "kernelspecs": all})
}

func (d *API) getSpec(w http.ResponseWriter, r *http.Request) error {
	name := chi.URLParam(r, "spec")
	if !IsValidSpec(name) {
		return brig.Errorf(brig.NotFound, "Kernel spec %s not found", brig.Clip(name, 64)).WithHint("list the kernel specs with GET /api/kernelspecs")
	}
	return httpapi.WriteJSON(w, http.StatusOK, specOf(name))
}

// kernelRequest is the body of a request to create a kernel. The other fields
// of Jupyter's requests refer to files on the server, which this server does
// not have.
type kernelRequest struct {
	Name string            `json:"name"`
	Env  map[string]string `json:"env"`
}

// maxKernelRequest is the maximum size of the body of a kernelRequest, in
// bytes.
const maxKernelRequest = 1 << 20

func (d *API) createKernel(w http.ResponseWriter, r *http.Request) error {
	// Which of the two operations applies depends on the body.
	if err := httpapi.Check(r, d.Service, "", brig.OpCreateKernel, brig.OpCreate); err != nil {
		return err
	}
	body, err := httpapi.ReadDocument(w, r, maxKernelRequest)
	if err != nil {
		return err
	}
	var in kernelRequest
	if len(body) > 0 {
		if err := exactjson.Unmarshal(body, &in); err != nil {
			return brig.Errorf(brig.InvalidArgument, "the body is not a JSON object of name and env").Because(err).
				WithHint(`send {"name": "python3"}, or nothing`)
		}
	}
	if in.Name == "" {
		in.Name = d.Default
	}
	if !IsValidSpec(in.Name) {
		return brig.InvalidField("name", "there is no kernel spec %q", brig.Clip(in.Name, 64)).WithHint("list the kernel specs with GET /api/kernelspecs")
	}
	k, err := d.create(r.Context(), in)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/kernels/"+k.ID)
	return httpapi.WriteJSON(w, http.StatusCreated, k)
}

func (d *API) listKernels(w http.ResponseWriter, r *http.Request) error {
	all, err := d.listModels(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, all)
}

func (d *API) getKernel(w http.ResponseWriter, r *http.Request) error {
	k, err := d.find(r.Context(), brig.OpGetKernel, chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	m, err := k.model(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, m)
}

// newActionHandler returns a handler that applies do to a kernel and responds without a
// body.
func (d *API) newActionHandler(do func(kernel, context.Context) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		k, err := d.find(r.Context(), brig.OpGetKernel, chi.URLParam(r, "id"))
		if err != nil {
			return err
		}
		if err := do(k, r.Context()); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

func (d *API) restartKernel(w http.ResponseWriter, r *http.Request) error {
	k, err := d.find(r.Context(), brig.OpGetKernel, chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	if err := k.restart(r.Context()); err != nil {
		return err
	}
	m, err := k.model(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, m)
}
