package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// Put implements brig.Store.
func (s *executions) Put(ctx context.Context, r *brig.Record, events ...brig.Event) error {
	kept := *r
	kept.Rev++
	doc, data, err := encode(&kept)
	if err != nil {
		return wrap(err, "encode sandbox %s", r.ID)
	}
	err = s.write(ctx, events, func(t *tx) error {
		var n int64
		var err error
		if r.Rev == 0 {
			n, err = t.exec(insertSandbox, string(r.ID), r.Tenant, r.Spec.Name, string(r.State), r.Digest,
				toNanos(r.Created), toNanos(r.Expires), kept.Rev, doc, data)
		} else {
			n, err = t.exec(updateSandbox, string(r.ID), r.Tenant, r.Spec.Name, string(r.State), r.Digest,
				toNanos(r.Created), toNanos(r.Expires), kept.Rev, doc, data, r.Rev)
		}
		if n == 0 || err != nil {
			return t.refused(r, err)
		}
		return t.putLabels(r)
	})
	if err != nil {
		return wrap(err, "put sandbox %s", r.ID)
	}
	r.Rev = kept.Rev
	return nil
}

// refused returns the error for a record that could not be written. It returns
// a conflict if another record has the unique value or if the revision has
// changed, and err otherwise.
func (t *tx) refused(r *brig.Record, err error) error {
	var rev int64
	scanErr := t.row(selectRev, string(r.ID)).Scan(&rev)
	exists := scanErr == nil
	switch {
	case scanErr != nil && !errors.Is(scanErr, sql.ErrNoRows):
		return errors.Join(err, scanErr)
	case r.Rev == 0 && exists:
		return contract.IDTakenError(r.ID)
	case r.Rev != 0 && rev != r.Rev:
		return contract.ConflictError(r)
	}
	var taken bool
	scanErr = t.row(selectNameTaken,
		r.Tenant, r.Spec.Name, string(r.ID)).Scan(&taken)
	if scanErr == nil && taken {
		return contract.NameTakenError(r.Spec.Name)
	}
	return errors.Join(err, scanErr)
}

func (t *tx) putLabels(r *brig.Record) error {
	if r.Rev != 0 {
		if _, err := t.exec(deleteLabels, string(r.ID)); err != nil {
			return err
		}
	}
	for k, v := range r.Spec.Labels {
		if _, err := t.exec(insertLabel, string(r.ID), k, v); err != nil {
			return err
		}
	}
	return nil
}

// Get implements brig.Store.
func (s *executions) Get(ctx context.Context, tenant, name string) (*brig.Record, error) {
	// An ID identifies its sandbox permanently, so it takes precedence over an equal name.
	var doc string
	var data []byte
	var r *brig.Record
	err := s.readStmts[selectSandbox].QueryRowContext(ctx, tenant, name).Scan(&doc, &data)
	if err == nil {
		r, err = s.recordCache.record(doc, data)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.SandboxNotFoundError(name)
	}
	return r, wrap(err, "get sandbox %s", name)
}

// Owner implements brig.Store.
func (s *executions) Owner(ctx context.Context, id brig.ID) (tenant string, err error) {
	err = s.readStmts[selectOwner].QueryRowContext(ctx, string(id)).Scan(&tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return "", contract.SandboxNotFoundError(string(id))
	}
	return tenant, wrap(err, "find the owner of %s", id)
}

// allBatch is the number of records that All reads at a time.
const allBatch = 100

// All implements brig.Store. No query is open while f runs, so f may use the store and may take
// a long time.
func (s *executions) All(ctx context.Context, f func(*brig.Record) error) error {
	after := ""
	for {
		batch, err := query(ctx, s.readers, scan[brig.Record],
			`select doc, data from sandboxes where id > $1 order by id limit $2`, after, allBatch)
		if err != nil {
			return wrap(err, "read all sandboxes")
		}
		for _, r := range batch {
			if err := f(r); err != nil {
				return err
			}
		}
		if len(batch) < allBatch {
			return nil
		}
		after = string(batch[len(batch)-1].ID)
	}
}

// Delete implements brig.Store. Foreign keys delete the executions and labels
// of the record.
func (s *executions) Delete(ctx context.Context, id brig.ID, events ...brig.Event) error {
	err := s.write(ctx, events, func(t *tx) error { return t.remove(id) })
	if err == nil {
		_ = s.reapAll(context.WithoutCancel(ctx)) // if this fails, Tidy removes the remaining files
	}
	return wrap(err, "delete sandbox %s", id)
}

func (t *tx) remove(id brig.ID) error {
	_, err := t.exec(deleteSandbox, string(id))
	return err
}

// scanner is a single row, or the current row of a result set.
type scanner interface{ Scan(dest ...any) error }

// scan decodes a row with a document and its blob.
func scan[T any](row scanner) (*T, error) {
	var doc string
	var data []byte
	if err := row.Scan(&doc, &data); err != nil {
		return nil, err
	}
	return decode[T](doc, data)
}

// query reads rows and decodes each row with scanRow.
func query[T any](ctx context.Context, db *sql.DB, scanRow func(scanner) (*T, error), q string, args ...any) ([]*T, error) {
	var out []*T
	err := queryWhile(ctx, db, func(row scanner) (bool, error) {
		v, err := scanRow(row)
		out = append(out, v)
		return err == nil, err
	}, q, args...)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// queryWhile calls f with each row until f returns false.
func queryWhile(ctx context.Context, db *sql.DB, f func(scanner) (bool, error), q string, args ...any) error {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if more, err := f(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}
