package client

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// Capabilities implements brig.Service.
func (c *Client) Capabilities(ctx context.Context) (*brig.Capabilities, error) {
	var in wire.Capabilities
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/capabilities"}, nil, &in); err != nil {
		return nil, err
	}
	return in.Noun(), nil
}

// Attest implements brig.Service.
func (c *Client) Attest(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandboxPath(name, "attest"), nil)
}
