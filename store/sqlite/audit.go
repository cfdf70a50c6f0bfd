package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// Append implements brig.Store.
func (s *Store) Append(ctx context.Context, events ...brig.Event) error {
	if len(events) == 0 {
		return ctx.Err()
	}
	err := s.write(ctx, events, func(*tx) error { return nil })
	return wrap(err, "append %d events", len(events))
}

// Events implements brig.Store. Newest is what was written last: the clock
// may have been set back.
func (s *Store) Events(ctx context.Context, n int) ([]brig.Event, error) {
	rows, err := s.readers.QueryContext(ctx, `
		select at, op, actor, tenant, sandbox, phase, kind, detail from events order by seq desc limit $1`, max(n, 0))
	if err != nil {
		return nil, wrap(err, "read events")
	}
	defer rows.Close()
	var out []brig.Event
	for rows.Next() {
		var e brig.Event
		var at, detail string
		if err := rows.Scan(&at, &e.Op, &e.Actor, &e.Tenant, &e.Sandbox, &e.Phase, &e.Kind, &detail); err != nil {
			return nil, wrap(err, "read events")
		}
		if err := complete(&e, at, detail); err != nil {
			return nil, wrap(err, "read events")
		}
		out = append(out, e)
	}
	return out, wrap(rows.Err(), "read events")
}

// PutKey implements brig.Store.
func (s *Store) PutKey(ctx context.Context, k brig.Key) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(putKey,
			k.Hash[:], k.Actor.Name, k.Actor.Tenant, int(k.Actor.Role))
		return err
	})
	return wrap(err, "put key of %s", k.Actor.Name)
}

// KeyActor implements brig.Store.
func (s *Store) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	var a brig.Actor
	err := s.owner.QueryRowContext(ctx, hash[:]).Scan(&a.Name, &a.Tenant, &a.Role)
	if errors.Is(err, sql.ErrNoRows) {
		return brig.Actor{}, contract.UnknownKey()
	}
	return a, wrap(err, "find key")
}
