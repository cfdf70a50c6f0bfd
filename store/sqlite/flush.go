package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// flushDelay is the maximum time before a write through Soon is flushed to the
// disk.
const flushDelay = 20 * time.Millisecond

// flusher flushes the writes whose callers do not wait for the disk.
type flusher struct {
	log string // the path of SQLite's write-ahead log

	mu   sync.Mutex // guards the fields below
	due  *time.Timer
	err  error // error of the last flush, until a caller receives it
	done bool
}

// schedule schedules a flush of the log to disk.
func (f *flusher) schedule() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due == nil && !f.done {
		f.due = time.AfterFunc(flushDelay, f.flush)
	}
}

func (f *flusher) flush() {
	f.mu.Lock()
	f.due = nil // later writes need another flush
	f.mu.Unlock()
	err := syncFile(f.log)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.err = storeError(fmt.Errorf("flush what was written: %w", err))
	}
}

// takeError returns the error of a flush once. The next writer receives it,
// because no caller waited for the flush itself.
func (f *flusher) takeError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.err
	f.err = nil
	return err
}

// stop stops the flusher. Closing the database flushes the remaining writes.
func (f *flusher) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	if f.due != nil {
		f.due.Stop()
	}
}

// syncFile flushes the file at path, including writes through other descriptors. Closing the
// file here does not release SQLite's locks, because SQLite does not lock its log.
func syncFile(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the log was merged into the database, which was flushed
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
