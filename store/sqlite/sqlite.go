// Package sqlite keeps records in a SQLite file. It implements brig.Store for
// a server, and for command lines that share the server's file.
//
// It owns the file, its schema and its migrations. Every write is one
// immediate transaction that is on disk (WAL, synchronous=FULL) when the
// method returns; several processes may open the same file. It knows nothing
// of providers, roles or quotas.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	driver "modernc.org/sqlite"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Store implements brig.Store. Call Open to get one.
type Store struct {
	// Now is the clock that PutRun dates outcomes with. Set it before use.
	Now func() time.Time

	// SQLite has one writer at a time. One connection for writing makes ours
	// queue in order instead of polling for the file's lock.
	writer  *sql.DB
	readers *sql.DB
	// ready are the statements of writes, and asked the reads of every call.
	// SQLite spends as long on reading one as on carrying it out.
	ready, asked map[string]*sql.Stmt
	known        *known
	// soon says that writes do not wait for the disk; synced is what the
	// writer's connection is set to, for whoever holds that.
	soon    bool
	synced  *bool
	flusher *flusher
}

var _ brig.Store = (*Store)(nil)

// Close implements brig.Store. It waits for what is being written.
func (s *Store) Close() error {
	s.flusher.stop()
	// The writer last: the last connection to go folds the WAL into the file,
	// which a read-only one cannot.
	if err := errors.Join(s.readers.Close(), s.writer.Close()); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// write runs f in a transaction that nobody else writes beside. It commits
// when f succeeds, the events with it, and changes nothing otherwise.
func (s *Store) write(ctx context.Context, events []brig.Event, f func(*tx) error) error {
	if err := s.flusher.failed(); err != nil {
		return err
	}
	inner, done, err := s.begin(ctx)
	if err != nil {
		if end := ctx.Err(); end != nil && !errors.Is(err, end) {
			// SQLite waits for another process's lock without asking ctx.
			err = fmt.Errorf("%w: %w", end, err)
		}
		return err
	}
	defer done()
	defer inner.Rollback() // after Commit it does nothing
	// A write that has its turn is over in no time: to watch for its caller's
	// end costs more.
	t := &tx{Tx: inner, ctx: context.WithoutCancel(ctx), ready: s.ready}
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
	if err == nil && s.soon {
		s.flusher.later()
	}
	return err
}

// begin waits for its turn to write.
func (s *Store) begin(ctx context.Context) (inner *sql.Tx, done func(), err error) {
	c, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if *s.synced == s.soon {
		// In WAL mode NORMAL writes to the log and FULL waits for the disk.
		mode := "pragma synchronous = full"
		if s.soon {
			mode = "pragma synchronous = normal"
		}
		if _, err := c.ExecContext(ctx, mode); err != nil {
			return nil, nil, err
		}
		*s.synced = !s.soon
	}
	inner, err = c.BeginTx(ctx, nil)
	return inner, func() { c.Close() }, err
}

// Soon implements brig.Store.
func (s *Store) Soon() brig.Store {
	other := *s
	other.soon = true
	return &other
}

// tx is a transaction that writes.
type tx struct {
	*sql.Tx
	ctx   context.Context
	ready map[string]*sql.Stmt
}

// exec carries out a statement, and reports how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	res, err := t.stmt(query).ExecContext(t.ctx, args...) //nolint:sqlclosecheck // see stmt
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// row asks for one row.
func (t *tx) row(query string, args ...any) *sql.Row {
	return t.stmt(query).QueryRowContext(t.ctx, args...) //nolint:sqlclosecheck // see stmt
}

// stmt returns a statement of this transaction. Every one is in statements: a
// test fails for one that is not.
// The transaction's end closes it.
func (t *tx) stmt(query string) *sql.Stmt { return t.StmtContext(t.ctx, t.ready[query]) }

// wrap says what was being done when err came, unless err is for the caller.
func wrap(err error, format string, args ...any) error {
	if _, ok := errors.AsType[*brig.Error](err); ok || err == nil {
		return err
	}
	err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
	if cause, ok := errors.AsType[*driver.Error](err); ok {
		switch cause.Code() & 0xff {
		case full:
			return brig.Errorf(brig.Unavailable, "the server's disk is full").
				WithHint("free space in the data folder").Because(err)
		case ioError:
			return broken(err)
		}
	}
	return err
}

// broken is what a caller is told of a disk that fails.
func broken(err error) error {
	return brig.Errorf(brig.Unavailable, "the server cannot read or write its records").
		WithHint("look at the disk of the data folder; the server's log has the cause").Because(err)
}

// Results of SQLite, of which the higher bits are details.
const (
	ioError = 10
	full    = 13
)

// nanos is t as it is compared in SQL. Times that an int64 of nanoseconds
// cannot hold (before 1678, as the zero time; after 2262) become the ends.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}
