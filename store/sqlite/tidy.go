package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"syscall"

	driver "modernc.org/sqlite"
)

const (
	// sparePages is the number of free pages that remain in the file for later writes.
	sparePages = 256
	// pagesPerStep is the number of pages that one write transaction releases.
	pagesPerStep = 512
	// maxSteps bounds the work of one call of Tidy to 64 MiB of 4 KiB pages.
	maxSteps = 32
	// maxLog is the maximum size of SQLite's write-ahead log after Tidy.
	maxLog = 1 << 20
	// minFreeSpace is the disk space that must remain free while the file is being rewritten.
	minFreeSpace = 64 << 20
)

// Tidy implements brig.Store. It removes unreferenced files and shrinks the database to its
// content.
func (s *db) Tidy(ctx context.Context) error {
	err := errors.Join(s.reapAll(ctx), s.sweep(ctx))
	return wrap(errors.Join(err, s.shrink(ctx)), "tidy the store")
}

// shrink releases free pages in small steps, because each step blocks other writers.
func (s *db) shrink(ctx context.Context) error {
	gave := false
	for range maxSteps {
		free, err := pragmaNumber(ctx, s.writer, "freelist_count")
		if err != nil {
			return err
		}
		if free <= sparePages {
			break
		}
		if err := s.releasePages(ctx, min(free-sparePages, pagesPerStep)); err != nil {
			return err
		}
		gave = true
	}
	info, err := os.Stat(s.flusher.log)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() <= maxLog && !gave {
		return nil
	}
	if err != nil {
		return err
	}
	return checkpoint(ctx, s.writer)
}

// checkpoint moves the log into the database, truncates the database to its
// content, and truncates the log to zero. If a reader is active, a later call
// completes the checkpoint.
func checkpoint(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	var busy, log, done int
	return db.QueryRowContext(ctx, "pragma wal_checkpoint(truncate)").Scan(&busy, &log, &done)
}

// releasePages removes free pages from the end of the file. Each row that SQLite
// returns is one page.
func (s *db) releasePages(ctx context.Context, pages int64) error {
	rows, err := s.writer.QueryContext(ctx, fmt.Sprintf("pragma incremental_vacuum(%d)", pages))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		continue
	}
	return rows.Err()
}

func pragmaNumber(ctx context.Context, db *sql.DB, pragma string) (n int64, err error) {
	err = db.QueryRowContext(ctx, "pragma "+pragma).Scan(&n)
	return n, err
}

// incremental is the value of auto_vacuum for a file that can release pages.
const incremental = 2

// convert rewrites a file of an older version of Brig once, so that it can release pages. If
// the disk has too little space, or another process uses the file, the next Open tries again.
func (s *db) convert(ctx context.Context, path string) error {
	mode, err := pragmaNumber(ctx, s.writer, "auto_vacuum")
	if err != nil || mode == incremental {
		return err
	}
	pages, err := pragmaNumber(ctx, s.writer, "page_count")
	if err != nil {
		return err
	}
	free, err := pragmaNumber(ctx, s.writer, "freelist_count")
	if err != nil {
		return err
	}
	size, err := pragmaNumber(ctx, s.writer, "page_size")
	if err != nil {
		return err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(path, &disk); err != nil {
		return err
	}
	// The rewrite needs space for the copy, and for the log through which the
	// copy is written back.
	if need := 2*(pages-free)*size + minFreeSpace; int64(disk.Bavail)*disk.Bsize < need {
		return nil
	}
	c, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, q := range []string{"pragma busy_timeout = 500", "pragma auto_vacuum = incremental", "vacuum",
		fmt.Sprintf("pragma busy_timeout = %d", busyTimeout.Milliseconds())} {
		if _, err := c.ExecContext(ctx, q); err != nil {
			_, restored := c.ExecContext(ctx, fmt.Sprintf("pragma busy_timeout = %d", busyTimeout.Milliseconds()))
			if isTemporary(err) {
				return restored
			}
			return errors.Join(err, restored)
		}
	}
	return checkpoint(ctx, c)
}

// isTemporary reports whether an error is temporary or caused by a lack of
// space. In both cases the vacuum has changed nothing and can be retried.
func isTemporary(err error) bool {
	cause, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return false
	}
	switch cause.Code() & 0xff {
	case full, busy, locked:
		return true
	}
	return false
}

// These are further SQLite result codes.
const (
	busy   = 5
	locked = 6
)
