package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// PutExec implements brig.Store.
func (s *executions) PutExec(ctx context.Context, x *brig.Execution) error {
	doc, data, err := encode(x)
	if err != nil {
		return wrap(err, "encode execution %s", x.ExecID)
	}
	b, err := s.outputs.put(doc, data, !s.lazySync)
	if err != nil {
		return wrap(err, "put execution %s", x.ExecID)
	}
	kept := false // the stored execution has ended, and x has not
	err = s.write(ctx, nil, func(t *tx) error {
		n, err := t.exec(putExecution, string(x.Sandbox), x.ExecID, toNanos(x.Started), doc, b.data, b.file, b.size, x.Done)
		if err != nil || n > 0 {
			return err
		}
		if err := t.row(selectExecExists, string(x.Sandbox), x.ExecID).Scan(&kept); err != nil || kept {
			return err
		}
		// No later call would delete the execution of a deleted sandbox.
		return contract.SandboxNotFoundError(string(x.Sandbox))
	})
	if err != nil || kept {
		s.outputs.drop(b)
	}
	return wrap(err, "put execution %s", x.ExecID)
}

// GetExec implements brig.Store.
func (s *executions) GetExec(ctx context.Context, sandbox brig.ID, execID string) (*brig.Execution, error) {
	x, err := unpack[brig.Execution](s.outputs, s.readers.QueryRowContext(ctx,
		`select doc, data, file, lost from executions where sandbox = $1 and id = $2`, string(sandbox), execID))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.ExecNotFoundError(execID)
	}
	return x, wrap(err, "get execution %s", execID)
}

// ListExecs implements brig.Store.
func (s *executions) ListExecs(ctx context.Context, sandbox brig.ID) ([]*brig.Execution, error) {
	left := contract.ListedBytes
	xs, err := query(ctx, s.readers, func(row scanner) (*brig.Execution, error) {
		var p packedRow
		var size int
		if err := row.Scan(&p.doc, &p.data, &p.file, &p.lost, &size); err != nil {
			return nil, err
		}
		if left -= size; left >= 0 {
			return unpackRow[brig.Execution](s.outputs, p)
		}
		left += size
		x, err := decodeLost[brig.Execution](p.doc, nil, true)
		if err == nil {
			contract.Shorten(x)
		}
		return x, err
	}, `select doc, data, file, lost, size from executions where sandbox = $1 order by started_ns desc, id desc`, string(sandbox))
	return xs, wrap(err, "list executions of %s", sandbox)
}

// PutRun implements brig.Store.
func (s *executions) PutRun(ctx context.Context, tenant string, o *brig.Outcome, events ...brig.Event) error {
	return s.putRun(ctx, tenant, o, events, func(*tx) error { return nil })
}

// EndRun implements brig.Store.
func (s *executions) EndRun(ctx context.Context, sandbox brig.ID, tenant string, o *brig.Outcome, events ...brig.Event) error {
	return s.putRun(ctx, tenant, o, events, func(t *tx) error { return t.remove(sandbox) })
}

// putRun writes an outcome and calls also within the same transaction.
func (s *executions) putRun(ctx context.Context, tenant string, o *brig.Outcome, events []brig.Event, also func(*tx) error) error {
	doc, data, err := encode(o)
	if err != nil {
		return wrap(err, "encode run %s", o.Sandbox)
	}
	b, err := s.outputs.put(doc, data, !s.lazySync)
	if err != nil {
		return wrap(err, "put run %s", o.Sandbox)
	}
	err = s.write(ctx, events, func(t *tx) error {
		_, err := t.exec(putRun, tenant, o.Sandbox, toNanos(s.Now()), doc, b.data, b.file, b.size)
		if err != nil {
			return err
		}
		return also(t)
	})
	if err != nil {
		s.outputs.drop(b)
	}
	return wrap(err, "put run %s", o.Sandbox)
}

// GetRun implements brig.Store.
func (s *executions) GetRun(ctx context.Context, tenant, name string) (*brig.Outcome, error) {
	o, err := unpack[brig.Outcome](s.outputs, s.readers.QueryRowContext(ctx,
		`select doc, data, file, lost from runs where tenant = $1 and name = $2`, tenant, name))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.RunNotFoundError(name)
	}
	return o, wrap(err, "get run %s", name)
}

// ListRuns implements brig.Store.
func (s *executions) ListRuns(ctx context.Context, tenant string, o brig.RunOptions) (*brig.RunPage, error) {
	limit, err := contract.Limit(brig.ListOptions{Limit: o.Limit})
	if err != nil {
		return nil, err
	}
	after, err := contract.ParseCursor(o.Cursor)
	if err != nil {
		return nil, err
	}
	q, args := `select name, put_ns, doc from runs where tenant = $1`, []any{tenant}
	if after != nil {
		q, args = q+` and (put_ns, name) < ($2, $3)`, append(args, toNanos(after.Created), string(after.ID))
	}
	page, size := &brig.RunPage{}, 0
	var last contract.Position
	err = queryWhile(ctx, s.readers, func(row scanner) (bool, error) {
		var name, doc string
		var put int64
		if err := row.Scan(&name, &put, &doc); err != nil {
			return false, err
		}
		if len(page.Runs) == limit || size >= contract.ListedBytes {
			page.Next = last.EncodeCursor()
			return false, nil
		}
		size += len(doc) // including runs that are filtered out, because they are read too
		last = contract.Position{Created: time.Unix(0, put), ID: brig.ID(name)}
		run, err := decodeLost[brig.Outcome](doc, nil, true) // a summary needs no output
		if err == nil && contract.IsWanted(run, o) {
			page.Runs = append(page.Runs, run.Summary())
		}
		return err == nil, err
	}, q+` order by put_ns desc, name desc`, args...)
	if err != nil {
		return nil, wrap(err, "list runs of %s", tenant)
	}
	return page, nil
}

// PruneRuns implements brig.Store.
func (s *executions) PruneRuns(ctx context.Context, before time.Time) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(deleteRuns, toNanos(before))
		return err
	})
	return wrap(err, "prune runs")
}
