package sqlite

import (
	"context"

	"github.com/brig-run/brig"
)

// Append implements brig.Store.
func (s *tenants) Append(ctx context.Context, events ...brig.Event) error {
	if len(events) == 0 {
		return ctx.Err()
	}
	err := s.write(ctx, events, func(*tx) error { return nil })
	return wrap(err, "append %d events", len(events))
}

// Events implements brig.Store. It sorts by write order, because the clock may
// have been set back.
func (s *tenants) Events(ctx context.Context, n int) ([]brig.Event, error) {
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
