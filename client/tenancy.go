package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// tenancyCalls are the calls for tenants, keys and usage.
type tenancyCalls struct{ *conn }

// CreateKey implements brig.Service.
func (c tenancyCalls) CreateKey(ctx context.Context, spec brig.KeySpec) (*brig.NewKey, error) {
	var check checker
	check.checkText("name", spec.Name)
	check.checkList("scopes", spec.Scopes)
	if check.err != nil {
		return nil, check.err
	}
	in := v1.FromKeySpec(spec)
	var out v1.NewKey
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/keys"}, in, &out); err != nil {
		return nil, err
	}
	return &brig.NewKey{Key: *out.Domain(), Secret: out.Secret}, nil
}

// Keys implements brig.Service.
func (c tenancyCalls) Keys(ctx context.Context, tenant string) ([]*brig.Key, error) {
	var out v1.Keys
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/keys", query: queryOf("tenant", tenant)}, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Key
	for _, k := range out.Keys {
		list = append(list, k.Domain())
	}
	return list, nil
}

// queryOf returns a query from pairs of names and values. It omits empty
// values.
func queryOf(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// RevokeKey implements brig.Service.
func (c tenancyCalls) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/keys/" + escapeSegment(id)}, nil, nil)
}

// CreateGrant implements brig.Service.
func (c tenancyCalls) CreateGrant(ctx context.Context, spec brig.GrantSpec) (*brig.NewGrant, error) {
	in := v1.FromGrantSpec(spec)
	var out v1.Grant
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/grants"}, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// CreateTenant implements brig.Service.
func (c tenancyCalls) CreateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	q, ceilings := v1.FromQuota(t.Quota), v1.FromCeilings(t.Ceilings)
	return c.sendTenant(ctx, http.MethodPost, "/v1/tenants", v1.TenantRequest{Name: t.Name, Budget: t.Budget, Quota: &q, Ceilings: &ceilings})
}

func (c tenancyCalls) sendTenant(ctx context.Context, method, path string, in any) (*brig.Tenant, error) {
	var out v1.Tenant
	if err := c.call(ctx, request{method: method, path: path}, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Tenants implements brig.Service.
func (c tenancyCalls) Tenants(ctx context.Context) ([]*brig.Tenant, error) {
	var out v1.Tenants
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/tenants"}, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Tenant
	for _, t := range out.Tenants {
		list = append(list, t.Domain())
	}
	return list, nil
}

// GetTenant implements brig.Service.
func (c tenancyCalls) GetTenant(ctx context.Context, name string) (*brig.Tenant, error) {
	if name == "" {
		return c.sendTenant(ctx, http.MethodGet, "/v1/tenant", nil)
	}
	return c.sendTenant(ctx, http.MethodGet, "/v1/tenants/"+escapeSegment(name), nil)
}

// UpdateTenant implements brig.Service.
func (c tenancyCalls) UpdateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	return c.sendTenant(ctx, http.MethodPut, "/v1/tenants/"+escapeSegment(t.Name), v1.FullTenant(t))
}

// RemoveTenant implements brig.Service.
func (c tenancyCalls) RemoveTenant(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/tenants/" + escapeSegment(name)}, nil, nil)
}

// TenantUsage implements brig.Service.
func (c tenancyCalls) TenantUsage(ctx context.Context, q brig.UsageQuery) ([]brig.UsageLine, error) {
	var out v1.Usage
	query := queryOf("tenant", q.Tenant, "from", q.From, "to", q.To, "label", q.Label)
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/usage", query: query}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}
