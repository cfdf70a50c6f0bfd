package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/brig-run/brig"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// maxReaders is the maximum number of read connections. Reads are short, so more concurrent
	// reads than CPUs have no benefit.
	maxReaders = 4
	// busyTimeout is the maximum time to wait while another process writes.
	busyTimeout = 10 * time.Second
	// lockPoll is the polling interval for the lock that another process holds while it opens
	// the same file.
	lockPoll = 20 * time.Millisecond
)

// Open opens the store in the file at path and migrates its schema. It creates
// the file and its directory if they do not exist. Only the current user can
// read the file. The caller must close the store.
func Open(ctx context.Context, path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s, err := open(ctx, path)
	return s, wrap(err, "open store %s", path)
}

func open(ctx context.Context, path string) (_ *Store, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, path+".lock")
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }()
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	synced := true // the initial setting of connect
	s := newStore(&db{Now: time.Now, synced: &synced, recordCache: &recordCache{}, flusher: &flusher{log: path + "-wal"}, outputs: outputs{path + "-outputs"}})
	if err := os.MkdirAll(s.outputs.dir, 0o700); err != nil {
		return nil, err
	}
	if s.writer, err = connect(path, 1, fmt.Sprintf("_auto_vacuum=INCREMENTAL&_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_pragma=journal_size_limit(%d)", maxLog)); err != nil {
		return nil, err
	}
	if s.readers, err = connect(path, maxReaders, "_query_only=1"); err != nil {
		return nil, errors.Join(err, s.writer.Close())
	}
	err = migrate(ctx, s.writer)
	if err == nil {
		s.writeStmts, err = prepare(ctx, s.writer, statements)
	}
	if err == nil {
		s.readStmts, err = prepare(ctx, s.readers, reads)
	}
	if err == nil {
		err = s.migrateData(ctx, path)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// migrateData migrates the data after migrate has migrated the schema. If the disk is full, it
// postpones the migration.
func (s *db) migrateData(ctx context.Context, path string) error {
	err := wrap(s.moveOutputs(ctx), "move outputs out of their rows")
	if brig.KindOf(err) == brig.Unavailable {
		err = nil
	}
	if err == nil {
		err = s.convert(ctx, path)
	}
	return errors.Join(err, s.reapAll(ctx), s.sweep(ctx))
}

// connect returns a pool of n connections to the file at path.
func connect(path string, n int, query string) (*sql.DB, error) {
	u := url.URL{Scheme: "file", Path: path,
		RawQuery: fmt.Sprintf("_busy_timeout=%d&%s", busyTimeout.Milliseconds(), query)}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// makePrivate ensures that only the owner can read the file at path. It creates the file, or
// changes the mode of an existing file. SQLite creates its other files with the same mode.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		// Do not open the file here, because closing it would release the POSIX locks that
		// another Store of this process may hold on it.
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return errors.New("not a regular file")
		}
		return os.Chmod(path, 0o600)
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	// A record is durable only if the directory entry of its file is durable.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lock acquires the lock that allows only one process at a time to open a store. The switch to
// WAL and goose's own tables do not support concurrency.
func lock(ctx context.Context, path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f.Close, nil // closing the descriptor releases the lock
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}

// migrate migrates db to the newest schema of this program.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if have > known {
		return brig.Errorf(brig.InvalidConfig, "the database is of a newer Brig: schema %d, this one knows %d", have, known).
			WithHint("upgrade Brig, or use another database file")
	}
	if have == known {
		return nil
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema from %d to %d: %w", have, known, err)
	}
	return nil
}
