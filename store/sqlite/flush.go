package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// flushDelay is how long a write through Soon is in the operating system's
// hands alone, at most.
const flushDelay = 20 * time.Millisecond

// flusher brings to the disk what was written without waiting for it.
type flusher struct {
	log string // the path of SQLite's write-ahead log

	mu   sync.Mutex // guards the fields below
	due  *time.Timer
	err  error // of the last flush, until somebody was told
	done bool
}

// later sees to it that what is in the log now is on the disk in a moment.
func (f *flusher) later() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due == nil && !f.done {
		f.due = time.AfterFunc(flushDelay, f.flush)
	}
}

func (f *flusher) flush() {
	f.mu.Lock()
	f.due = nil // what is written from here on needs another one
	f.mu.Unlock()
	err := syncFile(f.log)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.err = broken(fmt.Errorf("flush what was written: %w", err))
	}
}

// failed returns the error of a flush, once: the next who writes is told, as
// nobody waited for the flush itself.
func (f *flusher) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.err
	f.err = nil
	return err
}

// stop ends it. Closing the database flushes what is left.
func (f *flusher) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	if f.due != nil {
		f.due.Stop()
	}
}

// syncFile flushes the file at path, whoever wrote to it. SQLite has no locks
// on its log that closing the file here could drop.
func syncFile(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // folded into the database, which was flushed
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
