package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// sessionCalls are the calls for sign-in sessions.
type sessionCalls struct{ *conn }

// CreateSession implements brig.Service. The secret comes from the cookie that
// the server sets for browsers.
func (c sessionCalls) CreateSession(ctx context.Context) (*brig.NewSession, error) {
	resp, err := c.send(ctx, request{method: http.MethodPost, path: "/v1/auth/session"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out v1.NewSession
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, c.connectionError(ctx, "the server's answer ended early", err)
	}
	s := &brig.NewSession{Session: *out.Domain(), CSRFToken: out.CSRF}
	for _, cookie := range resp.Cookies() {
		if strings.HasPrefix(cookie.Value, brig.SessionPrefix) {
			s.Secret = cookie.Value
		}
	}
	return s, nil
}

// Sessions implements brig.Service.
func (c sessionCalls) Sessions(ctx context.Context, tenant string) ([]*brig.Session, error) {
	var out v1.Sessions
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/auth/sessions", query: queryOf("tenant", tenant)}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// EndSession implements brig.Service.
func (c sessionCalls) EndSession(ctx context.Context, id string) error {
	if id == "" {
		return c.call(ctx, request{method: http.MethodPost, path: "/v1/auth/logout"}, nil, nil)
	}
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/auth/sessions/" + escapeSegment(id)}, nil, nil)
}

// TokenRule returns the rule for identity provider tokens that the server
// accepts.
func (c sessionCalls) TokenRule(ctx context.Context) (brig.TokenRule, error) {
	var out v1.Whoami
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/auth/whoami"}, nil, &out)
	if err != nil || out.Tokens == nil {
		return brig.TokenRule{}, err
	}
	return brig.TokenRule(*out.Tokens), nil
}

// Whoami returns the actor of the client's key, grant or token.
func (c sessionCalls) Whoami(ctx context.Context) (*brig.Actor, error) {
	var out v1.Whoami
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/auth/whoami"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}
