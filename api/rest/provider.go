package rest

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// providerAPI has the handlers for providers.
type providerAPI struct{ *base }

// routes returns the routes of providers, which create sandboxes.
func (a providerAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	tenant := parameter{name: "tenant", doc: "name of a tenant; default: the default routing"}
	return []route{
		{id: "list-providers", method: get, pattern: "/v1/providers", tag: "providers", summary: "List providers and available kinds",
			handle: a.providers, out: v1.Providers{}},
		{id: "configure-provider", method: put, pattern: "/v1/providers/{id}", tag: "providers", summary: "Configure a provider",
			notes:  "The change applies to new work. error.fields lists every invalid setting.",
			handle: a.configureProvider, op: brig.OpConfigureProvider, in: v1.ProviderRequest{}, out: v1.Provider{}},
		{id: "test-provider", method: post, pattern: "/v1/providers/{id}/test", tag: "providers", summary: "Test a provider",
			handle: a.testProvider, op: brig.OpTestProvider, in: v1.TestRequest{}, optional: true, out: v1.ProviderTest{}},
		{id: "activate-provider", method: post, pattern: "/v1/providers/{id}/activate", tag: "providers", summary: "Activate a provider",
			handle: a.activateProvider, status: http.StatusNoContent},
		{id: "remove-provider", method: del, pattern: "/v1/providers/{id}", tag: "providers", summary: "Remove an unused provider",
			handle: a.removeProvider, status: http.StatusNoContent},
		{id: "get-routing", method: get, pattern: "/v1/routing", tag: "providers", summary: "Get the routing",
			handle: a.getRouting, out: v1.Routing{}, query: []parameter{tenant}},
		{id: "set-routing", method: put, pattern: "/v1/routing", tag: "providers", summary: "Change the routing",
			handle: a.setRouting, op: brig.OpSetRouting, in: v1.RoutingChange{}, out: v1.Routing{}, query: []parameter{tenant}},
	}
}

func (a providerAPI) providers(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Providers(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromProviders(list))
}

func fromProviders(list []brig.ProviderInfo) v1.Providers {
	out := v1.Providers{Providers: []v1.Provider{}}
	for i := range list {
		out.Providers = append(out.Providers, v1.FromProvider(&list[i]))
	}
	return out
}

func (a providerAPI) configureProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ProviderRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	id := param(r, "id")
	var p *brig.ProviderInfo
	err := reapply(r.Context(), func() (_ bool, err error) {
		now := brig.ProviderInfo{}
		if in.Terms != nil && in.Rev == nil {
			now.Rev = 1 // in case the provider does not exist yet
			list, err := a.Service.Providers(r.Context())
			if err != nil {
				return false, err
			}
			for _, x := range list {
				if x.ID == id {
					now = x
				}
			}
		}
		c := in.Domain(id, now.Terms)
		c.Rev = cmp.Or(c.Rev, now.Rev)
		p, err = a.Service.ConfigureProvider(r.Context(), c)
		return in.Rev != nil, err
	})
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromProvider(p))
}

func (a providerAPI) testProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.TestRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	t, err := a.Service.TestProvider(r.Context(), v1.ProviderRequest{Config: in.Config}.Domain(param(r, "id"), brig.Terms{}))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromTest(t))
}

func (a providerAPI) activateProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Service.ActivateProvider(r.Context(), param(r, "id")))
}

func (a providerAPI) removeProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Service.RemoveProvider(r.Context(), param(r, "id")))
}

func (a providerAPI) getRouting(w http.ResponseWriter, r *http.Request, q url.Values) error {
	got, err := a.Service.Routing(r.Context(), q.Get("tenant"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromRouting(*got))
}

func (a providerAPI) setRouting(w http.ResponseWriter, r *http.Request, q url.Values) error {
	var in v1.RoutingChange
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	var next brig.Routing
	err := reapply(r.Context(), func() (bool, error) {
		now, err := a.Service.Routing(r.Context(), q.Get("tenant"))
		if err == nil {
			next = in.Apply(*now)
			err = a.Service.SetRouting(r.Context(), q.Get("tenant"), next)
		}
		return in.Rev != nil, err
	})
	if err != nil {
		return trimFieldPrefix(err, "routing")
	}
	next.Rev = 0 // the next request for the routing returns the new revision
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromRouting(next))
}
