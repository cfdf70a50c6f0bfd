package kernels

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// The specs of kernels.
const (
	Stateful  = "python3"
	Ephemeral = "python3-ephemeral"
)

// Specs lists those that there are.
var specs = []string{Stateful, Ephemeral}

// ValidSpec reports whether there is a spec of that name.
func ValidSpec(name string) bool { return slices.Contains(specs, name) }

// gatewayVersion is the version of Jupyter's API that is spoken here.
const gatewayVersion = "2.14.2"

type route struct {
	method, pattern string
	handle          func(w http.ResponseWriter, r *http.Request) error
}

// routes is the only list of what the door has.
func (d *Door) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{get, "/api", d.about},
		{get, "/api/", d.about},
		{get, "/api/kernelspecs", d.listSpecs},
		{get, "/api/kernelspecs/{spec}", d.getSpec},
		{get, "/api/kernels", d.listKernels},
		{post, "/api/kernels", d.createKernel},
		{get, "/api/kernels/{id}", d.getKernel},
		{http.MethodDelete, "/api/kernels/{id}", d.changes(kernel.remove)},
		{post, "/api/kernels/{id}/interrupt", d.changes(kernel.interrupt)},
		{post, "/api/kernels/{id}/restart", d.restartKernel},
		{get, "/api/kernels/{id}/channels", d.channels},
	}
}

func (d *Door) router() http.Handler {
	mux := chi.NewRouter()
	for _, rt := range d.routes() {
		keyed := d.ring.Keyed(d.authenticate, rt.handle, d.fail)
		mux.MethodFunc(rt.method, rt.pattern, func(w http.ResponseWriter, r *http.Request) {
			door.Route(r, "kernels:"+rt.pattern)
			keyed(w, r)
		})
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, brig.Errorf(brig.NotFound, "Not Found"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, door.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "Method Not Allowed")))
	})
	return mux
}

func (d *Door) about(w http.ResponseWriter, _ *http.Request) error {
	return door.WriteJSON(w, http.StatusOK, map[string]string{"version": gatewayVersion, "gateway_version": gatewayVersion})
}

// kernelspec is what can be asked for, as Jupyter's servers tell it.
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

func (d *Door) listSpecs(w http.ResponseWriter, _ *http.Request) error {
	all := map[string]kernelspec{}
	for _, name := range specs {
		all[name] = specOf(name)
	}
	return door.WriteJSON(w, http.StatusOK, map[string]any{"default": d.Default, "kernelspecs": all})
}

func (d *Door) getSpec(w http.ResponseWriter, r *http.Request) error {
	name := chi.URLParam(r, "spec")
	if !ValidSpec(name) {
		return brig.Errorf(brig.NotFound, "Kernel spec %s not found", brig.Clip(name, 64)).WithHint("GET /api/kernelspecs lists those that there are")
	}
	return door.WriteJSON(w, http.StatusOK, specOf(name))
}

// wanted is what a request for a kernel says. Jupyter's other fields are about
// files of a server's, of which there are none.
type wanted struct {
	Name string            `json:"name"`
	Env  map[string]string `json:"env"`
}

// maxWanted bounds what is said of a kernel that is wanted.
const maxWanted = 1 << 20

func (d *Door) createKernel(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWanted))
	if err != nil {
		return door.BodyError(err)
	}
	var in wanted
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			return brig.Errorf(brig.InvalidArgument, "the body is not a JSON object of name and env").Because(err).
				WithHint(`send {"name": "python3"}, or nothing`)
		}
	}
	if in.Name == "" {
		in.Name = d.Default
	}
	if !ValidSpec(in.Name) {
		return brig.InvalidField("name", "there is no kernel spec %q", brig.Clip(in.Name, 64)).WithHint("GET /api/kernelspecs lists those that there are")
	}
	k, err := d.create(r.Context(), in)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/kernels/"+k.ID)
	return door.WriteJSON(w, http.StatusCreated, k)
}

func (d *Door) listKernels(w http.ResponseWriter, r *http.Request) error {
	all, err := d.all(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, all)
}

func (d *Door) getKernel(w http.ResponseWriter, r *http.Request) error {
	k, err := d.find(r.Context(), brig.OpGetKernel, chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	m, err := k.model(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, m)
}

// changes does something to a kernel of which there is nothing to tell.
func (d *Door) changes(do func(kernel, context.Context) error) func(http.ResponseWriter, *http.Request) error {
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

func (d *Door) restartKernel(w http.ResponseWriter, r *http.Request) error {
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
	return door.WriteJSON(w, http.StatusOK, m)
}
