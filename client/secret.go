package client

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// secretCalls are the calls for secrets.
type secretCalls struct{ *conn }

// PutSecret implements brig.Service.
func (c secretCalls) PutSecret(ctx context.Context, change brig.SecretChange) (*brig.Secret, error) {
	var out v1.Secret
	rq := request{method: http.MethodPut, path: "/v1/secrets/" + escapeSegment(change.Name)}
	if err := c.call(ctx, rq, v1.NewSecretRequest(change), &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Secrets implements brig.Service.
func (c secretCalls) Secrets(ctx context.Context) ([]*brig.Secret, error) {
	var out v1.Secrets
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/secrets"}, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Secret
	for _, s := range out.Secrets {
		list = append(list, s.Domain())
	}
	return list, nil
}

// RemoveSecret implements brig.Service.
func (c secretCalls) RemoveSecret(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/secrets/" + escapeSegment(name)}, nil, nil)
}

// RotateKey implements brig.Service.
func (c secretCalls) RotateKey(ctx context.Context) (int, error) {
	var out v1.Resealed
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/secrets/rotate_key"}, nil, &out)
	return out.Secrets, err
}
