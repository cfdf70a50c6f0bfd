package client

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// Templates implements brig.Service.
func (c *Client) Templates(ctx context.Context) ([]brig.Template, error) {
	var in wire.Templates
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/templates"}, nil, &in); err != nil {
		return nil, err
	}
	var out []brig.Template
	for _, t := range in.Templates {
		n := t.Noun()
		n.Limits = toLimits(t.Limits)
		out = append(out, n)
	}
	return out, nil
}
