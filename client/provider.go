package client

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func providerPath(id, more string) string {
	path := "/v1/providers/" + segment(id)
	if more != "" {
		path += "/" + more
	}
	return path
}

// Providers implements brig.Service.
func (c *Client) Providers(ctx context.Context) ([]brig.ProviderInfo, error) {
	var out wire.Providers
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/providers"}, nil, &out); err != nil {
		return nil, err
	}
	var list []brig.ProviderInfo
	for i := range out.Providers {
		list = append(list, *out.Providers[i].Noun())
	}
	return list, nil
}

// ConfigureProvider implements brig.Service.
func (c *Client) ConfigureProvider(ctx context.Context, p brig.ProviderConfig) (*brig.ProviderInfo, error) {
	var out wire.Provider
	if err := c.call(ctx, request{method: http.MethodPut, path: providerPath(p.ID, "")}, wire.FromProviderConfig(p), &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// TestProvider implements brig.Service.
func (c *Client) TestProvider(ctx context.Context, p brig.ProviderConfig) (*brig.ProviderTest, error) {
	var out wire.ProviderTest
	in := wire.TestRequest{Config: wire.Object(p.Config)}
	if err := c.call(ctx, request{method: http.MethodPost, path: providerPath(p.ID, "test")}, in, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// ActivateProvider implements brig.Service.
func (c *Client) ActivateProvider(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: providerPath(id, "activate")}, nil, nil)
}

// RemoveProvider implements brig.Service.
func (c *Client) RemoveProvider(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: providerPath(id, "")}, nil, nil)
}

// Routing implements brig.Service.
func (c *Client) Routing(ctx context.Context, tenant string) (*brig.Routing, error) {
	var out wire.Routing
	if err := c.call(ctx, routing(http.MethodGet, tenant), nil, &out); err != nil {
		return nil, err
	}
	r := out.Noun()
	return &r, nil
}

// SetRouting implements brig.Service.
func (c *Client) SetRouting(ctx context.Context, tenant string, r brig.Routing) error {
	return c.call(ctx, routing(http.MethodPut, tenant), wire.FromRouting(r), nil)
}

func routing(method, tenant string) request {
	return request{method: method, path: "/v1/routing", query: given("tenant", tenant)}
}
