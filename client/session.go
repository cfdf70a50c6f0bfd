package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// CreateSession implements brig.Service. The secret is what the server gives
// to browsers as a cookie.
func (c *Client) CreateSession(ctx context.Context) (*brig.NewSession, error) {
	resp, err := c.send(ctx, request{method: http.MethodPost, path: "/v1/auth/session"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out wire.NewSession
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, c.lost(ctx, "the server's answer ended early", err)
	}
	s := &brig.NewSession{Session: *out.Noun()}
	for _, cookie := range resp.Cookies() {
		if strings.HasPrefix(cookie.Value, brig.SessionPrefix) {
			s.Secret = cookie.Value
		}
	}
	return s, nil
}

// Sessions implements brig.Service.
func (c *Client) Sessions(ctx context.Context, tenant string) ([]*brig.Session, error) {
	var out wire.Sessions
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/auth/sessions", query: given("tenant", tenant)}, nil, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}

// EndSession implements brig.Service.
func (c *Client) EndSession(ctx context.Context, id string) error {
	if id == "" {
		return c.call(ctx, request{method: http.MethodPost, path: "/v1/auth/logout"}, nil, nil)
	}
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/auth/sessions/" + segment(id)}, nil, nil)
}

// Whoami says whom the client's key, grant or token proves.
func (c *Client) Whoami(ctx context.Context) (*brig.Actor, error) {
	var out wire.Whoami
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/auth/whoami"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Noun(), nil
}
