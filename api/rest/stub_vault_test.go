package rest_test

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
)

func (s *stub) PutSecret(_ context.Context, c brig.SecretChange) (*brig.Secret, error) {
	s.record(c)
	secret := c.Apply(brig.Secret{})
	if err := secret.Check(c.Value); err != nil {
		return nil, err
	}
	secret.Version, secret.Created, secret.Updated = 2, epoch, epoch
	return &secret, nil
}

func (s *stub) Secrets(context.Context) ([]*brig.Secret, error) {
	return []*brig.Secret{
		{Name: "db-password", Version: 1, Created: epoch, Updated: epoch},
		{Name: "token", Hosts: []string{"api.example.com"}, Places: []brig.SecretPlace{brig.SecretHeader}, Exclusive: true, Version: 3, Created: epoch, Updated: epoch},
	}, nil
}

func (s *stub) RemoveSecret(_ context.Context, name string) error {
	if s.record(name); name != "token" {
		return brig.Errorf(brig.NotFound, "no secret %q", name)
	}
	return nil
}

func (s *stub) RotateKey(context.Context) (int, error) { return 7, nil }

func (s *stub) Audit(_ context.Context, q brig.AuditQuery) (*brig.AuditPage, error) {
	s.record(q)
	l := audit.NewLine(brig.AuditLine{}, brig.Event{
		At: epoch, Op: "run", Actor: "ann", Tenant: "acme", Sandbox: "sb1", Phase: brig.Intent,
		Detail: map[string]string{brig.DetailCode: "sha256:aa", brig.DetailSecrets: "token"},
	})
	return &brig.AuditPage{Lines: []brig.AuditLine{l}, Next: 1, Head: brig.AuditHead{
		Tenant: "acme", Seq: 9, Hash: l.Hash, At: epoch, Key: []byte("key"), Signature: []byte("signature"),
	}}, nil
}
