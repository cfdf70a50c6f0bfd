package client

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// Alerts implements brig.Service.
func (c *Client) Alerts(ctx context.Context) ([]brig.Alert, error) {
	var out wire.Alerts
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/alerts"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}
