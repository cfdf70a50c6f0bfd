package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/brig-run/brig"
)

// These statements are used by Trim. Running executions are kept. An execution of an ended
// sandbox counts as ended, even if its end was never recorded.
const (
	selectCounts = `
		select (select count(*) from executions where sandbox = $1),
			(select count(*) from executions where sandbox = $1 and file <> ''),
			(select count(*) from runs where tenant = $2),
			coalesce((select bytes from kept_bytes where tenant = $2), 0)`
	selectSandboxes = `select id from sandboxes where tenant = $1`

	isFinished = `(done = 1 or exists (select 1 from sandboxes where sandboxes.id = executions.sandbox and state = 'stopped'))`

	deleteExecutions = `
		delete from executions where sandbox = $1 and ` + isFinished + ` and id in (
			select id from executions where sandbox = $1 order by started_ns desc, id desc limit -1 offset $2)`
	markOutputsLost = `
		update executions set file = '', data = x'', size = length(doc), lost = 1
		where sandbox = $1 and file <> '' and ` + isFinished + ` and id in (
			select id from executions where sandbox = $1 and file <> '' order by started_ns desc, id desc limit -1 offset $2)`
	deleteOldRuns = `
		delete from runs where tenant = $1 and name in (
			select name from runs where tenant = $1 order by put_ns desc, name desc limit -1 offset $2)`
	selectKeptBytes = `select bytes from kept_bytes where tenant = $1`
	// Select the oldest executions and outcomes, which are deleted first.
	selectOldest = `
		select sandbox, id, size, started_ns from executions where tenant = $1 and ` + isFinished + `
		order by started_ns, id limit $2`
	selectOldestRuns = `select '', name, size, put_ns from runs where tenant = $1 order by put_ns, name limit $2`
	deleteExecution  = `delete from executions where sandbox = $1 and id = $2`
	deleteRun        = `delete from runs where tenant = $1 and name = $2`
)

// trimBatch is the maximum number of rows that one transaction deletes.
const trimBatch = 200

// Trim implements brig.Store.
func (s *executions) Trim(ctx context.Context, tenant string, sandbox brig.ID, keep brig.Keep) error {
	sandboxes := []string{string(sandbox)}
	if sandbox == "" {
		var err error
		if sandboxes, err = queryTexts(ctx, s.readers, selectSandboxes, tenant); err != nil {
			return wrap(err, "trim what %s keeps", tenant)
		}
		sandboxes = append(sandboxes, "") // so that outcomes are trimmed even without sandboxes
	}
	var err error
	for _, id := range sandboxes {
		err = errors.Join(err, s.trim(ctx, tenant, id, keep))
	}
	return wrap(err, "trim what %s keeps", tenant)
}

func (s *executions) trim(ctx context.Context, tenant, sandbox string, keep brig.Keep) error {
	var executions, outputs, runs int
	var bytes int64
	// The check is cheap, and usually nothing has to be trimmed.
	err := s.readStmts[selectCounts].QueryRowContext(ctx, sandbox, tenant).Scan(&executions, &outputs, &runs, &bytes)
	if err != nil {
		return err
	}
	if executions <= keep.Executions && outputs <= keep.Outputs && runs <= keep.Runs && bytes <= keep.Bytes {
		return nil
	}
	err = s.write(ctx, nil, func(t *tx) error {
		if executions > keep.Executions {
			if _, err := t.exec(deleteExecutions, sandbox, keep.Executions); err != nil {
				return err
			}
		}
		if outputs > keep.Outputs {
			if _, err := t.exec(markOutputsLost, sandbox, keep.Outputs); err != nil {
				return err
			}
		}
		if runs > keep.Runs {
			if _, err := t.exec(deleteOldRuns, tenant, keep.Runs); err != nil {
				return err
			}
		}
		return nil
	})
	for more := true; more && err == nil; {
		more, err = s.trimBytes(ctx, tenant, keep.Bytes)
	}
	return errors.Join(err, s.reapAll(ctx))
}

// trimItem is an execution or an outcome that trimming may delete.
type trimItem struct {
	sandbox, name string
	size, at      int64
}

// trimBytes reduces a tenant's stored bytes to a limit. It deletes a bounded number of rows and
// reports whether more rows must be deleted.
func (s *executions) trimBytes(ctx context.Context, tenant string, maxBytes int64) (more bool, err error) {
	err = s.write(ctx, nil, func(t *tx) error {
		var bytes int64
		err := t.row(selectKeptBytes, tenant).Scan(&bytes)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil || bytes <= maxBytes {
			return err
		}
		oldest, err := t.oldestItems(tenant)
		if err != nil {
			return err
		}
		for _, p := range oldest {
			if bytes <= maxBytes {
				return nil
			}
			if p.sandbox == "" {
				_, err = t.exec(deleteRun, tenant, p.name)
			} else {
				_, err = t.exec(deleteExecution, p.sandbox, p.name)
			}
			if err != nil {
				return err
			}
			bytes -= p.size
		}
		more = bytes > maxBytes && len(oldest) > 0
		return nil
	})
	return more, err
}

// oldestItems returns the oldest of a tenant's executions and outcomes.
func (t *tx) oldestItems(tenant string) ([]trimItem, error) {
	var out []trimItem
	for _, q := range []string{selectOldest, selectOldestRuns} {
		rows, err := t.stmt(q).QueryContext(t.ctx, tenant, trimBatch) //nolint:sqlclosecheck // see stmt
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var p trimItem
			if err := rows.Scan(&p.sandbox, &p.name, &p.size, &p.at); err != nil {
				return nil, errors.Join(err, rows.Close()) //nolint:sqlclosecheck // rows are closed explicitly in the loop
			}
			out = append(out, p)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b trimItem) int { return cmp.Compare(a.at, b.at) })
	return out[:min(len(out), trimBatch)], nil
}

// reapAll removes all files that no row references.
func (s *db) reapAll(ctx context.Context) error {
	for {
		if more, err := s.reap(ctx); err != nil || !more {
			return err
		}
	}
}
