// Package sqlite stores records in a SQLite file. It implements brig.Store for
// a server, and for commands that share the server's file.
//
// The package manages the file, its schema and its migrations. Every write is one immediate
// transaction that is on disk (WAL, synchronous=FULL) when the method returns. Several
// processes may open the same file. The package does not depend on providers, roles or quotas.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	driver "modernc.org/sqlite"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Store implements brig.Store. Open returns a new Store.
type Store struct {
	*db
	executions
	tenants
	tooling
	templates
	volumes
	webhooks
}

// executions stores sandboxes, their executions and their outcomes.
type executions struct{ *db }

// tenants stores tenants, keys, sessions, settings and the audit log.
type tenants struct{ *db }

// tooling stores secrets and the setups and variables of agents' tools.
type tooling struct{ *db }

// templates stores the templates that tenants build.
type templates struct{ *db }

// volumes stores the records of volumes.
type volumes struct{ *db }

// webhooks stores webhooks and their deliveries.
type webhooks struct{ *db }

func newStore(s *db) *Store {
	return &Store{s, executions{s}, tenants{s}, tooling{s}, templates{s}, volumes{s}, webhooks{s}}
}

// db is the database file with its connections.
type db struct {
	// Now is the clock for the write times of outcomes. Set it before use.
	Now func() time.Time

	// SQLite allows one writer at a time. With a single write connection, the writers of this
	// process queue in order instead of polling for the lock of the file.
	writer  *sql.DB
	readers *sql.DB
	// writeStmts holds the prepared statements of writes, and readStmts holds those of frequent
	// reads. SQLite takes as long to parse a statement as to execute it.
	writeStmts, readStmts map[string]*sql.Stmt
	recordCache           *recordCache
	outputs               outputs
	// lazySync is true if writes do not wait for the disk. synced is the current setting of the
	// write connection. Only the holder of the connection may access it.
	lazySync bool
	synced   *bool
	flusher  *flusher
}

var _ brig.Store = (*Store)(nil)

// Close implements brig.Store. It waits for pending writes.
func (s *Store) Close() error {
	s.flusher.stop()
	// The writer must be closed last, because the last connection merges the WAL into the file,
	// and a read-only connection cannot do that.
	if err := errors.Join(s.readers.Close(), s.writer.Close()); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// write runs f in an exclusive write transaction. If f succeeds, write commits
// the changes together with the events; otherwise it rolls back.
func (s *db) write(ctx context.Context, events []brig.Event, f func(*tx) error) error {
	if err := s.flusher.takeError(); err != nil {
		return err
	}
	inner, done, err := s.begin(ctx)
	if err != nil {
		if end := ctx.Err(); end != nil && !errors.Is(err, end) {
			// SQLite waits for another process's lock without checking ctx.
			err = fmt.Errorf("%w: %w", end, err)
		}
		return err
	}
	defer done()
	defer inner.Rollback() // has no effect after Commit
	// The context is not watched from here on, because a write that holds the lock is fast, and
	// watching the caller's context would cost more.
	t := &tx{Tx: inner, ctx: context.WithoutCancel(ctx), writeStmts: s.writeStmts}
	if err := f(t); err != nil {
		return err
	}
	if err := t.appendEvents(events); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := failpoint.Fail("store.begun"); err != nil {
		return err
	}
	err = inner.Commit()
	failpoint.Hit("store.committed")
	if err == nil && s.lazySync {
		s.flusher.schedule()
	}
	return err
}

// begin waits for the write connection and starts a transaction.
func (s *db) begin(ctx context.Context) (inner *sql.Tx, done func(), err error) {
	c, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if *s.synced == s.lazySync {
		// In WAL mode, NORMAL only writes to the log, and FULL also waits for the disk.
		mode := "pragma synchronous = full"
		if s.lazySync {
			mode = "pragma synchronous = normal"
		}
		if _, err := c.ExecContext(ctx, mode); err != nil {
			return nil, nil, err
		}
		*s.synced = !s.lazySync
	}
	inner, err = c.BeginTx(ctx, nil)
	return inner, func() { c.Close() }, err
}

// Soon implements brig.Store.
func (s *db) Soon() brig.Store {
	other := *s
	other.lazySync = true
	return newStore(&other)
}

// tx is a write transaction.
type tx struct {
	*sql.Tx
	ctx        context.Context
	writeStmts map[string]*sql.Stmt
}

// exec executes a statement and returns the number of changed rows.
func (t *tx) exec(query string, args ...any) (int64, error) {
	res, err := t.stmt(query).ExecContext(t.ctx, args...) //nolint:sqlclosecheck // see stmt
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// row queries one row.
func (t *tx) row(query string, args ...any) *sql.Row {
	return t.stmt(query).QueryRowContext(t.ctx, args...) //nolint:sqlclosecheck // see stmt
}

// stmt returns a prepared statement for this transaction. Every query must be listed in
// statements, which a test verifies. The end of the transaction closes the returned statement.
func (t *tx) stmt(query string) *sql.Stmt { return t.StmtContext(t.ctx, t.writeStmts[query]) }

// wrap adds the operation to err, unless err is already an error that callers may see.
func wrap(err error, format string, args ...any) error {
	if _, ok := errors.AsType[*brig.Error](err); ok || err == nil {
		return err
	}
	err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return diskFullError(err)
	}
	if cause, ok := errors.AsType[*driver.Error](err); ok {
		switch cause.Code() & 0xff {
		case full:
			return diskFullError(err)
		case ioError:
			return storeError(err)
		}
	}
	return err
}

func diskFullError(err error) error {
	return brig.Errorf(brig.Unavailable, "the server's disk is full").
		WithHint("free space in the data folder").Because(err)
}

// storeError returns the error that callers see when the disk fails.
func storeError(err error) error {
	return brig.Errorf(brig.Unavailable, "the server cannot read or write its records").
		WithHint("look at the disk of the data folder; the server's log has the cause").Because(err)
}

// These are SQLite result codes. The higher bits hold details.
const (
	ioError = 10
	full    = 13
)

// toNanos returns t as a number that SQL can compare. Times that do not fit into an int64 of
// nanoseconds (before 1678, such as the zero time, or after 2262) become the minimum or the
// maximum.
func toNanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}
