package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for keys.
const (
	putKey = `
		insert into keys (hash, id, tenant, created_ns, used_ns, doc) values ($1, $2, $3, $4, $5, $6)
		on conflict (hash) do update set
			id = excluded.id, tenant = excluded.tenant, created_ns = excluded.created_ns, used_ns = excluded.used_ns, doc = excluded.doc`
	deleteKey = `delete from keys where id = $1`
	touchKey  = `update keys set used_ns = $2 where id = $1`
)

// keyDoc holds the fields of a key that have no column of their own.
type keyDoc struct {
	ID      string
	Kind    brig.KeyKind `json:",omitempty"`
	Prefix  string       `json:",omitempty"`
	Actor   brig.Actor
	Created time.Time `json:",omitzero"`
}

// PutKey implements brig.Store.
func (s *tenants) PutKey(ctx context.Context, k brig.Key) error {
	k.Actor.Expires = k.Actor.Expires.UTC()
	doc, err := json.Marshal(keyDoc{k.ID, k.Kind, k.Prefix, k.Actor, k.Created.UTC()})
	if err != nil {
		return wrap(err, "encode key of %s", k.Actor.Name)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(putKey, k.Hash[:], k.ID, k.Actor.Tenant, toNanos(k.Created), usedNanos(k.Used), string(doc))
		return err
	})
	return wrap(err, "put key of %s", k.Actor.Name)
}

func usedNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return toNanos(t)
}

// FindKey implements brig.Store.
func (s *tenants) FindKey(ctx context.Context, hash [32]byte) (*brig.Key, error) {
	k, err := scanKey(s.readStmts[selectKey].QueryRowContext(ctx, hash[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.UnknownKeyError()
	}
	return k, wrap(err, "find key")
}

// GetKey implements brig.Store.
func (s *tenants) GetKey(ctx context.Context, id string) (*brig.Key, error) {
	k, err := scanKey(s.readStmts[selectKeyByID].QueryRowContext(ctx, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.KeyNotFoundError(id)
	}
	return k, wrap(err, "get key %s", id)
}

// ListKeys implements brig.Store.
func (s *tenants) ListKeys(ctx context.Context, tenant string) ([]*brig.Key, error) {
	out, err := query(ctx, s.readers, scanKey, `
		select hash, used_ns, doc from keys where tenant = $1 or $1 = '*' order by created_ns, id`, tenant)
	return out, wrap(err, "list keys of %s", tenant)
}

func scanKey(row scanner) (*brig.Key, error) {
	var hash []byte
	var used int64
	var text string
	if err := row.Scan(&hash, &used, &text); err != nil {
		return nil, err
	}
	var doc keyDoc
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	k := &brig.Key{ID: doc.ID, Kind: doc.Kind, Prefix: doc.Prefix, Actor: doc.Actor, Created: doc.Created}
	copy(k.Hash[:], hash)
	if used != 0 {
		k.Used = time.Unix(0, used).UTC()
	}
	return k, nil
}

// DeleteKey implements brig.Store.
func (s *tenants) DeleteKey(ctx context.Context, id string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		if _, err := t.exec(deleteKeySessions, id); err != nil {
			return err
		}
		_, err := t.exec(deleteKey, id)
		return err
	})
	return wrap(err, "delete key %s", id)
}

// TouchKeys implements brig.Store.
func (s *tenants) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	return wrap(s.touch(ctx, touchKey, used), "note when keys were used")
}

// touch records times of last use with the given statement.
func (s *tenants) touch(ctx context.Context, statement string, used map[string]time.Time) error {
	return s.write(ctx, nil, func(t *tx) error {
		for id, at := range used {
			if _, err := t.exec(statement, id, toNanos(at)); err != nil {
				return err
			}
		}
		return nil
	})
}
