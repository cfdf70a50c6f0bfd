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
	// maxReaders bounds the connections for reading. Reads are short, and more
	// of them at once than processors gain nothing.
	maxReaders = 4
	// busyTimeout is how long to wait for another process that writes.
	busyTimeout = 10 * time.Second
	// lockPoll is how often to ask for the lock that another process has
	// while it opens the same file.
	lockPoll = 20 * time.Millisecond
)

// Open opens the store in the file at path, which it makes, with its
// directory, when there is none, and brings its schema up to date. Only the
// user who runs it may read the file. The caller closes the store.
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
	if err := private(path); err != nil {
		return nil, err
	}
	synced := true // as connect sets it
	s := &Store{Now: time.Now, synced: &synced, known: &known{}, flusher: &flusher{log: path + "-wal"}}
	if s.writer, err = connect(path, 1, "_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1"); err != nil {
		return nil, err
	}
	if s.readers, err = connect(path, maxReaders, "_query_only=1"); err != nil {
		return nil, errors.Join(err, s.writer.Close())
	}
	err = migrate(ctx, s.writer)
	if err == nil {
		s.ready, err = prepare(ctx, s.writer, statements)
	}
	if err == nil {
		s.asked, err = prepare(ctx, s.readers, reads)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
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

// private makes the file at path, or an existing one, readable by its owner
// only. SQLite gives the files beside it the same mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		// It must not be opened here: closing it again would drop the POSIX
		// locks that another Store of this process may have on it.
		info, err := os.Stat(path)
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
	// A record is durable only if the name of the file that holds it is.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lock takes the lock under which one process at a time opens a store:
// neither the switch to WAL nor goose's own tables bear two at once.
func lock(ctx context.Context, path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f.Close, nil // the lock goes with the descriptor
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

// migrate brings db's schema up to the newest that this program knows.
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
