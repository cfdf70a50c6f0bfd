package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/store/contract"
)

// appendEvents appends events to the chains of their tenants. The transaction
// holds the write lock, so that the end of a chain does not change after it is
// read.
func (t *tx) appendEvents(events []brig.Event) error {
	ends := map[string]brig.AuditLine{}
	for _, e := range events {
		end, known := ends[e.Tenant]
		if !known {
			var hash []byte
			err := t.row(selectChain, e.Tenant).Scan(&end.Seq, &hash)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("read the chain of %q: %w", e.Tenant, err)
			}
			copy(end.Hash[:], hash)
		}
		end = audit.NewLine(end, e)
		if err := t.insertLine(end); err != nil {
			return fmt.Errorf("append event %s: %w", e.Op, err)
		}
		ends[e.Tenant] = end
	}
	for tenant, end := range ends {
		if _, err := t.exec(putChain, tenant, end.Seq, end.At.Format(time.RFC3339Nano), end.Hash[:]); err != nil {
			return fmt.Errorf("write the chain of %q: %w", tenant, err)
		}
	}
	return nil
}

func (t *tx) insertLine(l brig.AuditLine) error {
	detail := "{}"
	if len(l.Detail) > 0 {
		b, err := json.Marshal(l.Detail)
		if err != nil {
			return err
		}
		detail = string(b)
	}
	_, err := t.exec(insertEvent, l.At.Format(time.RFC3339Nano), l.Op, l.Actor, l.Tenant, string(l.Sandbox), string(l.Phase), string(l.Kind),
		l.Seq, toNanos(l.At), detail, l.Prev[:], l.Hash[:])
	return err
}

// complete decodes the fields of an event that are stored in encoded form.
func complete(e *brig.Event, at, detail string) (err error) {
	if e.At, err = time.Parse(time.RFC3339Nano, at); err == nil && detail != "{}" {
		err = json.Unmarshal([]byte(detail), &e.Detail)
	}
	return err
}

// Audit implements brig.Store.
func (s *tenants) Audit(ctx context.Context, tenant string, q brig.AuditQuery) ([]brig.AuditLine, error) {
	limit, err := contract.AuditLimit(q)
	if err != nil {
		return nil, err
	}
	query := `select n, at, op, actor, tenant, sandbox, phase, kind, detail, prev, hash from events where tenant = ? and n > ?`
	after := max(q.After, 0)
	if q.NewestFirst {
		after = 0
	}
	args := []any{tenant, after}
	where := func(cond string, values ...any) {
		query, args = query+" and "+cond, append(args, values...)
	}
	if !q.Since.IsZero() {
		where("at_ns >= ?", toNanos(q.Since))
	}
	if !q.Until.IsZero() {
		where("at_ns < ?", toNanos(q.Until))
	}
	if q.Sandbox != "" {
		where("sandbox <> '' and (sandbox = ? or json_extract(detail, '$.name') = ?)", q.Sandbox, q.Sandbox)
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		where("exists (select 1 from json_each(detail) as d where d.key = ? and d.value = ?)", brig.DetailLabel+k, q.Labels[k])
	}
	if len(q.Ops) > 0 {
		ops, err := json.Marshal(q.Ops)
		if err != nil {
			return nil, wrap(err, "read the audit log")
		}
		where("op in (select value from json_each(?))", string(ops))
	}
	if q.Before > 0 {
		where("n < ?", q.Before)
	}
	order := " order by n limit ?"
	if q.NewestFirst {
		order = " order by n desc limit ?"
	}
	rows, err := s.readers.QueryContext(ctx, query+order, append(args, limit)...)
	if err != nil {
		return nil, wrap(err, "read the audit log")
	}
	defer rows.Close()
	var out []brig.AuditLine
	for rows.Next() {
		var l brig.AuditLine
		var at, detail string
		var prev, hash []byte
		err := rows.Scan(&l.Seq, &at, &l.Op, &l.Actor, &l.Tenant, &l.Sandbox, &l.Phase, &l.Kind, &detail, &prev, &hash)
		if err = errors.Join(err, complete(&l.Event, at, detail)); err != nil {
			return nil, wrap(err, "read the audit log")
		}
		copy(l.Prev[:], prev)
		copy(l.Hash[:], hash)
		out = append(out, l)
	}
	return out, wrap(rows.Err(), "read the audit log")
}

// AuditHeads implements brig.Store.
func (s *tenants) AuditHeads(ctx context.Context) ([]brig.AuditHead, error) {
	rows, err := s.readers.QueryContext(ctx, `select tenant, n, at, hash from chains order by tenant`)
	if err != nil {
		return nil, wrap(err, "read the audit log's heads")
	}
	defer rows.Close()
	var out []brig.AuditHead
	for rows.Next() {
		var h brig.AuditHead
		var at string
		var hash []byte
		err := rows.Scan(&h.Tenant, &h.Seq, &at, &hash)
		if err == nil {
			h.At, err = time.Parse(time.RFC3339Nano, at)
		}
		if err != nil {
			return nil, wrap(err, "read the audit log's heads")
		}
		copy(h.Hash[:], hash)
		out = append(out, h)
	}
	return out, wrap(rows.Err(), "read the audit log's heads")
}

// PruneAudit implements brig.Store.
func (s *tenants) PruneAudit(ctx context.Context, before time.Time, maxLines int64) error {
	err := s.write(ctx, nil, func(t *tx) error {
		heads, err := t.prunedChains()
		if err != nil {
			return err
		}
		for _, h := range heads {
			if err := t.prune(h, before, maxLines, s.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(err, "prune the audit log")
}

// prunedChain is the length of a chain and the last line to prune.
type prunedChain struct {
	tenant  string
	n, upTo int64
}

func (t *tx) prunedChains() (out []prunedChain, err error) {
	rows, err := t.stmt(selectChains).QueryContext(t.ctx) //nolint:sqlclosecheck // see stmt
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p prunedChain
		if err := rows.Scan(&p.tenant, &p.n, &p.upTo); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

func (t *tx) prune(p prunedChain, before time.Time, maxLines int64, now time.Time) error {
	var kept sql.NullInt64
	if err := t.row(selectKept, p.tenant, toNanos(before)).Scan(&kept); err != nil {
		return err
	}
	upTo := p.n
	if kept.Valid {
		upTo = kept.Int64 - 1
	}
	upTo = max(upTo, contract.PruneLimit(p.n, p.upTo, maxLines))
	if upTo <= p.upTo {
		return nil
	}
	var hash []byte
	if err := t.row(selectHash, p.tenant, upTo).Scan(&hash); err != nil {
		return err
	}
	if _, err := t.exec(deleteEvents, p.tenant, upTo); err != nil {
		return err
	}
	if err := t.appendEvents([]brig.Event{contract.Pruned(p.tenant, now, upTo, hash)}); err != nil {
		return err
	}
	_, err := t.exec(setPruned, p.tenant, upTo)
	return err
}
