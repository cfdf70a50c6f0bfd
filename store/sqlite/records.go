package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// Put implements brig.Store.
func (s *Store) Put(ctx context.Context, r *brig.Record, events ...brig.Event) error {
	kept := *r
	kept.Rev++
	doc, data, err := encode(&kept)
	if err != nil {
		return wrap(err, "encode sandbox %s", r.ID)
	}
	err = s.write(ctx, events, func(tx *sql.Tx) error {
		if err := admit(ctx, tx, r); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `
			insert into sandboxes (id, tenant, name, state, digest, created_ns, expires_ns, rev, doc, data)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			on conflict (id) do update set
				tenant = excluded.tenant, name = excluded.name, state = excluded.state,
				digest = excluded.digest, created_ns = excluded.created_ns,
				expires_ns = excluded.expires_ns, rev = excluded.rev,
				doc = excluded.doc, data = excluded.data`,
			string(r.ID), r.Tenant, r.Spec.Name, string(r.State), r.Digest,
			nanos(r.Created), nanos(r.Expires), kept.Rev, doc, data)
		if err != nil {
			return err
		}
		return putLabels(ctx, tx, r)
	})
	if err != nil {
		return wrap(err, "put sandbox %s", r.ID)
	}
	r.Rev = kept.Rev
	return nil
}

// admit checks that r may be written. The transaction is immediate, so what
// it finds stays true until the commit.
func admit(ctx context.Context, tx *sql.Tx, r *brig.Record) error {
	var rev int64
	err := tx.QueryRowContext(ctx, `select rev from sandboxes where id = $1`, string(r.ID)).Scan(&rev)
	exists := err == nil
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case r.Rev == 0 && exists:
		return contract.IDTaken(r.ID)
	case r.Rev != 0 && rev != r.Rev:
		return contract.Moved(r)
	}
	var taken bool
	err = tx.QueryRowContext(ctx,
		`select exists (select 1 from sandboxes where tenant = $1 and name = $2 and id <> $3)`,
		r.Tenant, r.Spec.Name, string(r.ID)).Scan(&taken)
	if err != nil {
		return err
	}
	if taken {
		return contract.NameTaken(r.Spec.Name)
	}
	return nil
}

func putLabels(ctx context.Context, tx *sql.Tx, r *brig.Record) error {
	if r.Rev != 0 {
		if _, err := tx.ExecContext(ctx, `delete from labels where sandbox = $1`, string(r.ID)); err != nil {
			return err
		}
	}
	for k, v := range r.Spec.Labels {
		_, err := tx.ExecContext(ctx,
			`insert into labels (sandbox, key, value) values ($1, $2, $3)`, string(r.ID), k, v)
		if err != nil {
			return err
		}
	}
	return nil
}

// Get implements brig.Store.
func (s *Store) Get(ctx context.Context, tenant, name string) (*brig.Record, error) {
	// An id names its sandbox for ever, so it wins over an equal name.
	r, err := scan[brig.Record](s.readers.QueryRowContext(ctx, `
		select doc, data from sandboxes where tenant = $1 and (id = $2 or name = $2)
		order by id = $2 desc limit 1`, tenant, name))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoSandbox(name)
	}
	return r, wrap(err, "get sandbox %s", name)
}

// allBatch is how many records All reads at a time.
const allBatch = 100

// All implements brig.Store. No query is open while f runs, so f may use the
// store, and take its time.
func (s *Store) All(ctx context.Context, f func(*brig.Record) error) error {
	after := ""
	for {
		batch, err := query[brig.Record](ctx, s.readers,
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

// Delete implements brig.Store. Executions and labels go with the record by
// their foreign keys.
func (s *Store) Delete(ctx context.Context, id brig.ID, events ...brig.Event) error {
	err := s.write(ctx, events, func(tx *sql.Tx) error { return remove(ctx, tx, id) })
	return wrap(err, "delete sandbox %s", id)
}

func remove(ctx context.Context, tx *sql.Tx, id brig.ID) error {
	_, err := tx.ExecContext(ctx, `delete from sandboxes where id = $1`, string(id))
	return err
}

// scanner is a row of one query or of many.
type scanner interface{ Scan(dest ...any) error }

// scan reads a row of a document and its blob.
func scan[T any](row scanner) (*T, error) {
	var doc string
	var data []byte
	if err := row.Scan(&doc, &data); err != nil {
		return nil, err
	}
	return decode[T](doc, data)
}

// query reads rows of documents and blobs.
func query[T any](ctx context.Context, db *sql.DB, q string, args ...any) ([]*T, error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*T
	for rows.Next() {
		v, err := scan[T](rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
