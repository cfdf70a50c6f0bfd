package mem

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// PutSecret implements brig.Store.
func (s *tooling) PutSecret(ctx context.Context, secret *brig.SealedSecret, was int, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key, have := name{secret.Tenant, secret.Name}, 0
	if old := s.secrets[key]; old != nil {
		have = old.Version
	}
	if have != was {
		return contract.SecretConflictError(secret.Name)
	}
	s.secrets[key] = cloneSecret(secret)
	s.appendEvents(events)
	return nil
}

// GetSecret implements brig.Store.
func (s *tooling) GetSecret(ctx context.Context, tenant, secret string) (*brig.SealedSecret, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if x := s.secrets[name{tenant, secret}]; x != nil {
		return cloneSecret(x), nil
	}
	return nil, contract.SecretNotFoundError(secret)
}

// Secrets implements brig.Store.
func (s *tooling) Secrets(ctx context.Context, tenant string) ([]*brig.SealedSecret, error) {
	all, err := s.AllSecrets(ctx)
	return slices.DeleteFunc(all, func(x *brig.SealedSecret) bool { return x.Tenant != tenant }), err
}

// AllSecrets implements brig.Store.
func (s *tooling) AllSecrets(ctx context.Context) ([]*brig.SealedSecret, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.SealedSecret
	for _, x := range s.secrets {
		out = append(out, cloneSecret(x))
	}
	slices.SortFunc(out, func(a, b *brig.SealedSecret) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// DeleteSecret implements brig.Store.
func (s *tooling) DeleteSecret(ctx context.Context, tenant, secret string, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key := name{tenant, secret}
	if s.secrets[key] == nil {
		return contract.SecretNotFoundError(secret)
	}
	delete(s.secrets, key)
	s.appendEvents(events)
	return nil
}

func cloneSecret(x *brig.SealedSecret) *brig.SealedSecret {
	c := *x
	c.Secret, c.Sealed = contract.CloneSecret(x.Secret), bytes.Clone(x.Sealed)
	return &c
}
