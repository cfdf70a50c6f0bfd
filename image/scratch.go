package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// scratch is a directory for work in progress. A process that works there holds
// a lock next to it, so that Open can identify leftovers.
type scratch struct {
	dir  string
	lock string
	f    *os.File

	removeAll func(dir string) error
}

// newScratch makes an empty scratch directory. The caller discards it.
func (s *Store) newScratch() (*scratch, error) {
	w, err := s.claimScratch(rand.Text())
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		w.discard()
		return nil, fmt.Errorf("make work folder: %w", err)
	}
	return w, nil
}

// errBusy means that another process holds a lock.
var errBusy = errors.New("another process is working there")

// claimScratch takes the lock of the scratch directory with that name. It
// returns errBusy if another process holds it.
func (s *Store) claimScratch(name string) (*scratch, error) {
	w := &scratch{dir: s.path("tmp", name), lock: s.path("tmp", name+".lock"), removeAll: s.opts.removeAll}
	for {
		f, err := os.OpenFile(w.lock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock work folder: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errBusy
			}
			return nil, fmt.Errorf("lock work folder: %w", err)
		}
		// The previous holder may have removed the file, and another process
		// may have locked a new file with the same name. Check that the locked
		// file still has the name.
		mine, err1 := f.Stat()
		named, err2 := os.Stat(w.lock)
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			w.f = f
			return w, nil
		}
		_ = f.Close()
	}
}

// discard removes the directory with its contents and then releases the lock.
func (w *scratch) discard() {
	// The next Open removes the files that cannot be removed now.
	if err := w.removeAll(w.dir); err == nil {
		_ = os.Remove(w.lock)
	}
	_ = w.f.Close()
}

// clearLeftovers removes the scratch directories that no process uses.
func (s *Store) clearLeftovers() {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		s.opts.Log.Warn("failed to list temporary folders of images", "error", err)
		return
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".lock")
		w, err := s.claimScratch(name)
		if errors.Is(err, errBusy) {
			continue
		}
		if err != nil {
			s.opts.Log.Warn("failed to remove a temporary folder of an image", "folder", name, "error", err)
			continue
		}
		if _, err := os.Lstat(w.dir); !errors.Is(err, fs.ErrNotExist) {
			s.opts.Log.Info("removing a temporary folder of an image", "folder", name)
		}
		w.discard()
	}
}

// lockFile waits for an exclusive lock on a file that is never removed.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
