package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// PutSecret implements brig.Store.
func (s *tooling) PutSecret(ctx context.Context, secret *brig.SealedSecret, was int, events ...brig.Event) error {
	doc, _, err := encode(&secret.Secret)
	if err != nil {
		return wrap(err, "encode secret %s", secret.Name)
	}
	err = s.write(ctx, events, func(t *tx) error {
		have := 0
		err := t.row(selectVersion, secret.Tenant, secret.Name).Scan(&have)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if have != was {
			return contract.SecretConflictError(secret.Name)
		}
		_, err = t.exec(putSecret, secret.Tenant, secret.Name, secret.Version, doc, secret.Key, secret.Sealed)
		return err
	})
	return wrap(err, "put secret %s", secret.Name)
}

// GetSecret implements brig.Store.
func (s *tooling) GetSecret(ctx context.Context, tenant, name string) (*brig.SealedSecret, error) {
	list, err := s.secrets(ctx, `where tenant = $1 and name = $2`, tenant, name)
	if err == nil && len(list) == 0 {
		err = contract.SecretNotFoundError(name)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// Secrets implements brig.Store.
func (s *tooling) Secrets(ctx context.Context, tenant string) ([]*brig.SealedSecret, error) {
	return s.secrets(ctx, `where tenant = $1 order by name`, tenant)
}

// AllSecrets implements brig.Store.
func (s *tooling) AllSecrets(ctx context.Context) ([]*brig.SealedSecret, error) {
	return s.secrets(ctx, `order by tenant, name`)
}

// secrets reads the secrets that match the condition. A value is sealed together with its
// tenant and name, so it can be decrypted only with these.
func (s *tooling) secrets(ctx context.Context, where string, args ...any) ([]*brig.SealedSecret, error) {
	rows, err := s.readers.QueryContext(ctx, `select tenant, name, version, doc, key, sealed from secrets `+where, args...)
	if err != nil {
		return nil, wrap(err, "read secrets")
	}
	defer rows.Close()
	var out []*brig.SealedSecret
	for rows.Next() {
		var x brig.SealedSecret
		var name, doc string
		var version int
		if err := rows.Scan(&x.Tenant, &name, &version, &doc, &x.Key, &x.Sealed); err != nil {
			return nil, wrap(err, "read secrets")
		}
		secret, err := decode[brig.Secret](doc, nil)
		if err != nil {
			return nil, wrap(err, "read secret %s", name)
		}
		x.Secret = *secret
		x.Name, x.Version = name, version
		out = append(out, &x)
	}
	return out, wrap(rows.Err(), "read secrets")
}

// DeleteSecret implements brig.Store.
func (s *tooling) DeleteSecret(ctx context.Context, tenant, name string, events ...brig.Event) error {
	err := s.write(ctx, events, func(t *tx) error {
		n, err := t.exec(deleteSecret, tenant, name)
		if err == nil && n == 0 {
			return contract.SecretNotFoundError(name)
		}
		return err
	})
	return wrap(err, "delete secret %s", name)
}
