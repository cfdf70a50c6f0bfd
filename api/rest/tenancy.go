package rest

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// tenancyAPI has the handlers for tenants, keys and usage.
type tenancyAPI struct{ *base }

// routes returns the routes of tenants, keys and usage.
func (a tenancyAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	tenant := parameter{name: "tenant", doc: "name of a tenant; default: the caller's. Other tenants, and * for all, are for operators"}
	return []route{
		{id: "create-key", method: post, pattern: "/v1/keys", tag: "keys", summary: "Create an API key",
			notes:  "Only this response has the key itself.",
			handle: a.createKey, op: brig.OpCreateKey, in: v1.KeyRequest{}, out: v1.NewKey{}, status: http.StatusCreated},
		{id: "list-keys", method: get, pattern: "/v1/keys", tag: "keys", summary: "List a tenant's API keys, oldest first",
			handle: a.listKeys, out: v1.Keys{}, query: []parameter{tenant}},
		{id: "revoke-key", method: del, pattern: "/v1/keys/{id}", tag: "keys", summary: "Revoke an API key",
			handle: a.revokeKey, status: http.StatusNoContent},
		{id: "create-grant", method: post, pattern: "/v1/grants", tag: "keys", summary: "Create a grant",
			handle: a.createGrant, op: brig.OpCreateGrant, in: v1.GrantRequest{}, optional: true, out: v1.Grant{}, status: http.StatusCreated},
		{id: "create-tenant", method: post, pattern: "/v1/tenants", tag: "tenants", summary: "Create a tenant",
			handle: a.createTenant, op: brig.OpCreateTenant, in: v1.TenantRequest{}, out: v1.Tenant{}, status: http.StatusCreated},
		{id: "list-tenants", method: get, pattern: "/v1/tenants", tag: "tenants", summary: "List tenants",
			handle: a.listTenants, out: v1.Tenants{}},
		{id: "get-own-tenant", method: get, pattern: "/v1/tenant", tag: "tenants", summary: "Get the caller's own tenant",
			handle: a.getTenant, out: v1.Tenant{}},
		{id: "get-tenant", method: get, pattern: "/v1/tenants/{name}", tag: "tenants", summary: "Get a tenant",
			handle: a.getTenant, out: v1.Tenant{}},
		{id: "update-tenant", method: put, pattern: "/v1/tenants/{name}", tag: "tenants", summary: "Change a tenant's quota, budget and ceilings",
			handle: a.updateTenant, op: brig.OpUpdateTenant, in: v1.TenantChange{}, out: v1.Tenant{}, names: true},
		{id: "remove-tenant", method: del, pattern: "/v1/tenants/{name}", tag: "tenants", summary: "Remove a tenant",
			handle: a.removeTenant, status: http.StatusNoContent},
		{id: "usage", method: get, pattern: "/v1/usage", tag: "tenants", summary: "Get usage by day",
			handle: a.usage, out: v1.Usage{}, query: []parameter{
				tenant,
				{name: "from", doc: "first day (UTC), as 2006-01-02; default: today, or to if that is earlier", format: "date", nonempty: true, example: "2026-01-02"},
				{name: "to", doc: "last day; default: today", format: "date", nonempty: true, example: "2026-01-31"},
				{name: "label", doc: "group by the values of this label of sandboxes; default: totals"},
			}},
	}
}

func (a tenancyAPI) createKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.KeyRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	spec, err := in.Domain()
	if err != nil {
		return err
	}
	k, err := a.Service.CreateKey(r.Context(), spec)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, fromNewKey(k))
}

func fromNewKey(k *brig.NewKey) v1.NewKey {
	return v1.NewKey{Key: v1.FromKey(&k.Key), Secret: k.Secret}
}

func (a tenancyAPI) listKeys(w http.ResponseWriter, r *http.Request, q url.Values) error {
	list, err := a.Service.Keys(r.Context(), q.Get("tenant"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromKeys(list))
}

func fromKeys(list []*brig.Key) v1.Keys {
	out := v1.Keys{Keys: []v1.Key{}}
	for _, k := range list {
		out.Keys = append(out.Keys, v1.FromKey(k))
	}
	return out
}

func (a tenancyAPI) revokeKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Service.RevokeKey(r.Context(), param(r, "id")))
}

func writeNoContent(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a tenancyAPI) createGrant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.GrantRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	spec, err := in.Domain()
	if err != nil {
		return err
	}
	g, err := a.Service.CreateGrant(r.Context(), spec)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromGrant(g))
}

func (a tenancyAPI) createTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.TenantRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	t, err := a.Service.CreateTenant(r.Context(), brig.Tenant{Name: in.Name, Budget: in.Budget, Quota: in.Quota.Domain(), Ceilings: in.Ceilings.Domain()})
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromTenant(t))
}

func (a tenancyAPI) listTenants(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Tenants(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromTenants(list))
}

func fromTenants(list []*brig.Tenant) v1.Tenants {
	out := v1.Tenants{Tenants: []v1.Tenant{}}
	for _, t := range list {
		out.Tenants = append(out.Tenants, v1.FromTenant(t))
	}
	return out
}

func (a tenancyAPI) getTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	t, err := a.Service.GetTenant(r.Context(), param(r, "name"))
	return writeTenant(w, t, err)
}

func (a tenancyAPI) updateTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	// Fields that are missing in the body keep their values.
	body, err := httpapi.ReadJSONBody(w, r)
	if err != nil {
		return err
	}
	var t *brig.Tenant
	err = reapply(r.Context(), func() (pinned bool, err error) {
		now, err := a.Service.GetTenant(r.Context(), param(r, "name"))
		if err != nil {
			return false, err
		}
		in := v1.ChangeOf(now)
		if err := httpapi.DecodeDescribed(bytes.Clone(body), in); err != nil {
			return false, err
		}
		t, err = a.Service.UpdateTenant(r.Context(), in.Domain(now))
		return in.Rev != nil, err
	})
	return writeTenant(w, t, err)
}

// reapply is like brig.Reapply, but does not repeat a change whose request
// specifies the revision.
func reapply(ctx context.Context, change func() (pinned bool, err error)) error {
	var last error
	err := brig.Reapply(ctx, func() error {
		pinned, err := change()
		if last = err; pinned {
			return nil
		}
		return err
	})
	return cmp.Or(err, last)
}

func writeTenant(w http.ResponseWriter, t *brig.Tenant, err error) error {
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromTenant(t))
}

func (a tenancyAPI) removeTenant(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Service.RemoveTenant(r.Context(), param(r, "name")))
}

func (a tenancyAPI) usage(w http.ResponseWriter, r *http.Request, q url.Values) error {
	lines, err := a.Service.TenantUsage(r.Context(), brig.UsageQuery{
		Tenant: q.Get("tenant"), From: q.Get("from"), To: q.Get("to"), Label: q.Get("label"),
	})
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromUsage(lines))
}
