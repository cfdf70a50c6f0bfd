package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// CreateKey implements brig.Service.
func (c *Client) CreateKey(ctx context.Context, spec brig.KeySpec) (*brig.NewKey, error) {
	var check checker
	check.text("name", spec.Name)
	check.list("scopes", spec.Scopes)
	if check.err != nil {
		return nil, check.err
	}
	in := wire.FromKeySpec(spec)
	in.TTLMS = millis(spec.TTL)
	var out wire.NewKey
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/keys"}, in, &out); err != nil {
		return nil, err
	}
	return &brig.NewKey{Key: *out.Noun(), Secret: out.Secret}, nil
}

// Keys implements brig.Service.
func (c *Client) Keys(ctx context.Context, tenant string) ([]*brig.Key, error) {
	var out wire.Keys
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/keys", query: given("tenant", tenant)}, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Key
	for _, k := range out.Keys {
		list = append(list, k.Noun())
	}
	return list, nil
}

// given returns a query of those of some names and values that have a value.
func given(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// RevokeKey implements brig.Service.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/keys/" + segment(id)}, nil, nil)
}

// CreateGrant implements brig.Service.
func (c *Client) CreateGrant(ctx context.Context, spec brig.GrantSpec) (*brig.NewGrant, error) {
	in := wire.FromGrantSpec(spec)
	in.TTLMS = millis(spec.TTL)
	var out wire.Grant
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/grants"}, in, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// CreateTenant implements brig.Service.
func (c *Client) CreateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	q, ceilings := wire.FromQuota(t.Quota), wire.FromCeilings(t.Ceilings)
	return c.tenant(ctx, http.MethodPost, "/v1/tenants", wire.TenantRequest{Name: t.Name, Budget: t.Budget, Quota: &q, Ceilings: &ceilings})
}

func (c *Client) tenant(ctx context.Context, method, path string, in any) (*brig.Tenant, error) {
	var out wire.Tenant
	if err := c.call(ctx, request{method: method, path: path}, in, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// Tenants implements brig.Service.
func (c *Client) Tenants(ctx context.Context) ([]*brig.Tenant, error) {
	var out wire.Tenants
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/tenants"}, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Tenant
	for _, t := range out.Tenants {
		list = append(list, t.Noun())
	}
	return list, nil
}

// GetTenant implements brig.Service.
func (c *Client) GetTenant(ctx context.Context, name string) (*brig.Tenant, error) {
	if name == "" {
		return c.tenant(ctx, http.MethodGet, "/v1/tenant", nil)
	}
	return c.tenant(ctx, http.MethodGet, "/v1/tenants/"+segment(name), nil)
}

// UpdateTenant implements brig.Service.
func (c *Client) UpdateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	q, ceilings := wire.FromQuota(t.Quota), wire.FromCeilings(t.Ceilings)
	return c.tenant(ctx, http.MethodPut, "/v1/tenants/"+segment(t.Name), wire.TenantChange{Budget: t.Budget, Quota: &q, Ceilings: &ceilings})
}

// RemoveTenant implements brig.Service.
func (c *Client) RemoveTenant(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/tenants/" + segment(name)}, nil, nil)
}

// TenantUsage implements brig.Service.
func (c *Client) TenantUsage(ctx context.Context, q brig.UsageQuery) ([]brig.UsageLine, error) {
	var out wire.Usage
	query := given("tenant", q.Tenant, "from", q.From, "to", q.To, "label", q.Label)
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/usage", query: query}, nil, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}
