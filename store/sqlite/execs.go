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
func (s *Store) PutExec(ctx context.Context, x *brig.Execution) error {
	doc, data, err := encode(x)
	if err != nil {
		return wrap(err, "encode execution %s", x.ExecID)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		// Of a sandbox that is gone nothing may be kept: nobody would ever
		// remove it again.
		var exists bool
		err := t.row(selectExists, string(x.Sandbox)).Scan(&exists)
		if err != nil {
			return err
		}
		if !exists {
			return contract.NoSandbox(string(x.Sandbox))
		}
		_, err = t.exec(putExecution,
			string(x.Sandbox), x.ExecID, nanos(x.Started), doc, data)
		return err
	})
	return wrap(err, "put execution %s", x.ExecID)
}

// GetExec implements brig.Store.
func (s *Store) GetExec(ctx context.Context, sandbox brig.ID, execID string) (*brig.Execution, error) {
	x, err := scan[brig.Execution](s.readers.QueryRowContext(ctx,
		`select doc, data from executions where sandbox = $1 and id = $2`, string(sandbox), execID))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoExec(execID)
	}
	return x, wrap(err, "get execution %s", execID)
}

// ListExecs implements brig.Store.
func (s *Store) ListExecs(ctx context.Context, sandbox brig.ID) ([]*brig.Execution, error) {
	xs, err := query(ctx, s.readers, scan[brig.Execution],
		`select doc, data from executions where sandbox = $1 order by started_ns desc, id desc`, string(sandbox))
	return xs, wrap(err, "list executions of %s", sandbox)
}

// PutRun implements brig.Store.
func (s *Store) PutRun(ctx context.Context, tenant string, o *brig.Outcome, events ...brig.Event) error {
	return s.putRun(ctx, tenant, o, events, func(*tx) error { return nil })
}

// EndRun implements brig.Store.
func (s *Store) EndRun(ctx context.Context, sandbox brig.ID, tenant string, o *brig.Outcome, events ...brig.Event) error {
	return s.putRun(ctx, tenant, o, events, func(t *tx) error { return t.remove(sandbox) })
}

// putRun writes an outcome and does what else belongs to it.
func (s *Store) putRun(ctx context.Context, tenant string, o *brig.Outcome, events []brig.Event, also func(*tx) error) error {
	doc, data, err := encode(o)
	if err != nil {
		return wrap(err, "encode run %s", o.Sandbox)
	}
	err = s.write(ctx, events, func(t *tx) error {
		_, err := t.exec(putRun,
			tenant, o.Sandbox, nanos(s.Now()), doc, data)
		if err != nil {
			return err
		}
		return also(t)
	})
	return wrap(err, "put run %s", o.Sandbox)
}

// GetRun implements brig.Store.
func (s *Store) GetRun(ctx context.Context, tenant, name string) (*brig.Outcome, error) {
	o, err := scan[brig.Outcome](s.readers.QueryRowContext(ctx,
		`select doc, data from runs where tenant = $1 and name = $2`, tenant, name))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoRun(name)
	}
	return o, wrap(err, "get run %s", name)
}

// PruneRuns implements brig.Store.
func (s *Store) PruneRuns(ctx context.Context, before time.Time) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(deleteRuns, nanos(before))
		return err
	})
	return wrap(err, "prune runs")
}
