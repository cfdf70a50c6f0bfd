package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// providerRoutes are those of where sandboxes are made.
func (a *api) providerRoutes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	tenant := parameter{name: "tenant", doc: "whose; default that of all who have none of their own"}
	return []route{
		{id: "list-providers", method: get, pattern: "/v1/providers", tag: "providers", summary: "List providers, and the kinds of which there is none",
			handle: a.providers, out: wire.Providers{}},
		{id: "configure-provider", method: put, pattern: "/v1/providers/{id}", tag: "providers", summary: "Say how a provider is reached and used",
			notes:  "It holds for what begins from then on. Everything that is wrong with the configuration is in error.fields.",
			handle: a.configureProvider, in: wire.ProviderRequest{}, out: wire.Provider{}},
		{id: "test-provider", method: post, pattern: "/v1/providers/{id}/test", tag: "providers", summary: "Run a program at a provider, and keep nothing",
			handle: a.testProvider, in: wire.TestRequest{}, optional: true, out: wire.ProviderTest{}},
		{id: "activate-provider", method: post, pattern: "/v1/providers/{id}/activate", tag: "providers", summary: "Make a provider the active one",
			handle: a.activateProvider, status: http.StatusNoContent},
		{id: "remove-provider", method: del, pattern: "/v1/providers/{id}", tag: "providers", summary: "Forget a provider that nobody uses",
			handle: a.removeProvider, status: http.StatusNoContent},
		{id: "get-routing", method: get, pattern: "/v1/routing", tag: "providers", summary: "Get which providers are tried, and in which order",
			handle: a.getRouting, out: wire.Routing{}, query: []parameter{tenant}},
		{id: "set-routing", method: put, pattern: "/v1/routing", tag: "providers", summary: "Say which providers are tried, and in which order",
			handle: a.setRouting, in: wire.Routing{}, out: wire.Routing{}, query: []parameter{tenant}},
	}
}

func (a *api) providers(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Providers(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromProviders(list))
}

func fromProviders(list []brig.ProviderInfo) wire.Providers {
	out := wire.Providers{Providers: []wire.Provider{}}
	for i := range list {
		out.Providers = append(out.Providers, wire.FromProvider(&list[i]))
	}
	return out
}

func (a *api) configureProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.ProviderRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	p, err := a.Service.ConfigureProvider(r.Context(), in.Noun(param(r, "id")))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromProvider(p))
}

func (a *api) testProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.TestRequest
	if err := door.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	t, err := a.Service.TestProvider(r.Context(), wire.ProviderRequest{Config: in.Config}.Noun(param(r, "id")))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromTest(t))
}

func (a *api) activateProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return answerNothing(w, a.Service.ActivateProvider(r.Context(), param(r, "id")))
}

func (a *api) removeProvider(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return answerNothing(w, a.Service.RemoveProvider(r.Context(), param(r, "id")))
}

func (a *api) getRouting(w http.ResponseWriter, r *http.Request, q url.Values) error {
	got, err := a.Service.Routing(r.Context(), q.Get("tenant"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromRouting(*got))
}

func (a *api) setRouting(w http.ResponseWriter, r *http.Request, q url.Values) error {
	var in wire.Routing
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.Service.SetRouting(r.Context(), q.Get("tenant"), in.Noun()); err != nil {
		return ofBody(err, "routing")
	}
	return door.WriteJSON(w, http.StatusOK, in)
}
