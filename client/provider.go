package client

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// providerCalls are the calls for providers.
type providerCalls struct{ *conn }

func providerPath(id, more string) string {
	path := "/v1/providers/" + escapeSegment(id)
	if more != "" {
		path += "/" + more
	}
	return path
}

// Providers implements brig.Service.
func (c providerCalls) Providers(ctx context.Context) ([]brig.ProviderInfo, error) {
	var out v1.Providers
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/providers"}, nil, &out); err != nil {
		return nil, err
	}
	var list []brig.ProviderInfo
	for i := range out.Providers {
		list = append(list, *out.Providers[i].Domain())
	}
	return list, nil
}

// ConfigureProvider implements brig.Service.
func (c providerCalls) ConfigureProvider(ctx context.Context, p brig.ProviderConfig) (*brig.ProviderInfo, error) {
	var out v1.Provider
	if err := c.call(ctx, request{method: http.MethodPut, path: providerPath(p.ID, "")}, v1.FromProviderConfig(p), &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// TestProvider implements brig.Service.
func (c providerCalls) TestProvider(ctx context.Context, p brig.ProviderConfig) (*brig.ProviderTest, error) {
	var out v1.ProviderTest
	in := v1.TestRequest{Config: v1.Object(p.Config)}
	if err := c.call(ctx, request{method: http.MethodPost, path: providerPath(p.ID, "test")}, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// ActivateProvider implements brig.Service.
func (c providerCalls) ActivateProvider(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: providerPath(id, "activate")}, nil, nil)
}

// RemoveProvider implements brig.Service.
func (c providerCalls) RemoveProvider(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: providerPath(id, "")}, nil, nil)
}

// Routing implements brig.Service.
func (c providerCalls) Routing(ctx context.Context, tenant string) (*brig.Routing, error) {
	var out v1.Routing
	if err := c.call(ctx, routingRequest(http.MethodGet, tenant), nil, &out); err != nil {
		return nil, err
	}
	r := out.Domain()
	return &r, nil
}

// SetRouting implements brig.Service.
func (c providerCalls) SetRouting(ctx context.Context, tenant string, r brig.Routing) error {
	return c.call(ctx, routingRequest(http.MethodPut, tenant), v1.Explicit(v1.FromRouting(r)), nil)
}

func routingRequest(method, tenant string) request {
	return request{method: method, path: "/v1/routing", query: queryOf("tenant", tenant)}
}
