package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// tenancyRoutes are those of tenants, keys and what was used.
func (a *api) tenancyRoutes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	tenant := parameter{name: "tenant", doc: "whose; default the caller's own; others, and * for all, are for operators"}
	return []route{
		{id: "create-key", method: post, pattern: "/v1/keys", tag: "keys", summary: "Make a key of no more than the caller's own rights",
			notes:  "The answer is the only one that ever has the key itself.",
			handle: a.createKey, in: wire.KeyRequest{}, out: wire.NewKey{}, status: http.StatusCreated},
		{id: "list-keys", method: get, pattern: "/v1/keys", tag: "keys", summary: "List a tenant's keys, oldest first",
			handle: a.listKeys, out: wire.Keys{}, query: []parameter{tenant}},
		{id: "revoke-key", method: del, pattern: "/v1/keys/{id}", tag: "keys", summary: "End a key, its grants, and what goes on with them",
			handle: a.revokeKey, status: http.StatusNoContent},
		{id: "create-grant", method: post, pattern: "/v1/grants", tag: "keys", summary: "Make a token of a part of the caller's rights",
			handle: a.createGrant, in: wire.GrantRequest{}, optional: true, out: wire.Grant{}, status: http.StatusCreated},
		{id: "create-tenant", method: post, pattern: "/v1/tenants", tag: "tenants", summary: "Create a tenant",
			handle: a.createTenant, in: wire.TenantRequest{}, out: wire.Tenant{}, status: http.StatusCreated},
		{id: "list-tenants", method: get, pattern: "/v1/tenants", tag: "tenants", summary: "List tenants",
			handle: a.listTenants, out: wire.Tenants{}},
		{id: "get-own-tenant", method: get, pattern: "/v1/tenant", tag: "tenants", summary: "Get the caller's own tenant",
			handle: a.getTenant, out: wire.Tenant{}},
		{id: "get-tenant", method: get, pattern: "/v1/tenants/{name}", tag: "tenants", summary: "Get a tenant",
			handle: a.getTenant, out: wire.Tenant{}},
		{id: "update-tenant", method: put, pattern: "/v1/tenants/{name}", tag: "tenants", summary: "Give a tenant another quota and other ceilings",
			handle: a.updateTenant, in: wire.TenantChange{}, out: wire.Tenant{}},
		{id: "remove-tenant", method: del, pattern: "/v1/tenants/{name}", tag: "tenants", summary: "Forget a tenant that has no sandboxes, with its keys and usage",
			handle: a.removeTenant, status: http.StatusNoContent},
		{id: "usage", method: get, pattern: "/v1/usage", tag: "tenants", summary: "Get what was used, by day",
			handle: a.usage, out: wire.Usage{}, query: []parameter{
				tenant,
				{name: "from", doc: "the first day, 2006-01-02, of UTC; default today"},
				{name: "to", doc: "the last day; default today"},
				{name: "label", doc: "by the values of this label of sandboxes; default the sums"},
			}},
	}
}

func (a *api) createKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.KeyRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	spec, err := in.Noun()
	if err != nil {
		return err
	}
	k, err := a.Service.CreateKey(r.Context(), spec)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, fromNewKey(k))
}

func fromNewKey(k *brig.NewKey) wire.NewKey {
	return wire.NewKey{Key: wire.FromKey(&k.Key), Secret: k.Secret}
}

func (a *api) listKeys(w http.ResponseWriter, r *http.Request, q url.Values) error {
	list, err := a.Service.Keys(r.Context(), q.Get("tenant"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromKeys(list))
}

func fromKeys(list []*brig.Key) wire.Keys {
	out := wire.Keys{Keys: []wire.Key{}}
	for _, k := range list {
		out.Keys = append(out.Keys, wire.FromKey(k))
	}
	return out
}

func (a *api) revokeKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return answerNothing(w, a.Service.RevokeKey(r.Context(), param(r, "id")))
}

func answerNothing(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) createGrant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.GrantRequest
	if err := door.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	spec, err := in.Noun()
	if err != nil {
		return err
	}
	g, err := a.Service.CreateGrant(r.Context(), spec)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, wire.FromGrant(g))
}

func (a *api) createTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.TenantRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	t, err := a.Service.CreateTenant(r.Context(), brig.Tenant{Name: in.Name, Budget: in.Budget, Quota: in.Quota.Noun(), Ceilings: in.Ceilings.Noun()})
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, wire.FromTenant(t))
}

func (a *api) listTenants(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Tenants(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromTenants(list))
}

func fromTenants(list []*brig.Tenant) wire.Tenants {
	out := wire.Tenants{Tenants: []wire.Tenant{}}
	for _, t := range list {
		out.Tenants = append(out.Tenants, wire.FromTenant(t))
	}
	return out
}

func (a *api) getTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	t, err := a.Service.GetTenant(r.Context(), param(r, "name"))
	return answerTenant(w, t, err)
}

func (a *api) updateTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.TenantChange
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	t, err := a.Service.UpdateTenant(r.Context(), brig.Tenant{Name: param(r, "name"), Budget: in.Budget, Quota: in.Quota.Noun(), Ceilings: in.Ceilings.Noun()})
	return answerTenant(w, t, err)
}

func answerTenant(w http.ResponseWriter, t *brig.Tenant, err error) error {
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromTenant(t))
}

func (a *api) removeTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return answerNothing(w, a.Service.RemoveTenant(r.Context(), param(r, "name")))
}

func (a *api) usage(w http.ResponseWriter, r *http.Request, q url.Values) error {
	lines, err := a.Service.TenantUsage(r.Context(), brig.UsageQuery{
		Tenant: q.Get("tenant"), From: q.Get("from"), To: q.Get("to"), Label: q.Get("label"),
	})
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromUsage(lines))
}
