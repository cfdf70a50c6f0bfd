package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/sparse"
)

// Dir stores objects in a directory, one file per object.
type Dir struct {
	path  string
	holds holds // locks within this process; lock files exclude other processes
}

var _ Objects = (*Dir)(nil)

// Directories for data other than objects.
const (
	stagingDir = "staging"
	holdDir    = "holds"
)

// lockDelay is the age after which a staged file without a lock is considered
// abandoned. A new file is locked much sooner.
var lockDelay = 30 * time.Second

// OpenDir opens a directory and creates it if it does not exist.
func OpenDir(path string) (*Dir, error) {
	d := &Dir{path: path}
	if err := os.MkdirAll(filepath.Join(path, stagingDir), 0o700); err != nil {
		return nil, err
	}
	if _, err := d.removeAbandoned(); err != nil {
		return nil, err
	}
	return d, nil
}

// RemoveAbandoned implements Objects. It removes the staged files of processes
// that have ended. Running processes hold locks on their files.
func (d *Dir) RemoveAbandoned(context.Context, string) (n int, err error) {
	return d.removeAbandoned()
}

func (d *Dir) removeAbandoned() (n int, err error) {
	staged, err := os.ReadDir(filepath.Join(d.path, stagingDir))
	if err != nil {
		return 0, err
	}
	for _, e := range staged {
		if st, err := e.Info(); err != nil || !st.Mode().IsRegular() || time.Since(st.ModTime()) < lockDelay {
			continue
		}
		f, err := os.OpenFile(filepath.Join(d.path, stagingDir, e.Name()), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue // the file was published after the directory was read
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.Remove(f.Name()) == nil {
			n++
		}
		f.Close()
	}
	return n, nil
}

// Kind implements Objects.
func (d *Dir) Kind() string { return "local" }

func (d *Dir) filePath(key string) (string, error) {
	return filepath.Join(d.path, "objects", filepath.FromSlash(key)), checkKey(key)
}

// dirStage is a file that is being written.
type dirStage struct {
	sparse.File
	d    *Dir
	done bool
}

// Stage implements Objects.
func (d *Dir) Stage(context.Context) (Stage, error) { return d.newStage() }

func (d *Dir) newStage() (*dirStage, error) {
	f, err := os.CreateTemp(filepath.Join(d.path, stagingDir), "")
	if err != nil {
		return nil, err
	}
	stage := &dirStage{File: sparse.File{File: f}, d: d}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		stage.Abort()
		return nil, err
	}
	return stage, nil
}

// syncFile makes a file durable. Tests replace it.
var syncFile = (*os.File).Sync

// Publish implements Stage. It always replaces an existing object, because a power
// failure may have torn that object: its name is durable, but its content may not
// be. If a version may reference the existing object, the new content must be
// durable before it replaces the object. Publish checks for an existing object
// atomically in the file system, because another commit may publish the same
// content concurrently.
func (s *dirStage) Publish(_ context.Context, key string) error {
	err := s.finish(key, os.Link)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncFile(s.File.File); err != nil {
		return err
	}
	return s.finish(key, os.Rename)
}

// finish moves the file to its final name with the function move. The file
// remains locked until then.
func (s *dirStage) finish(key string, move func(from, to string) error) error {
	file, err := s.d.filePath(key)
	if err == nil {
		err = s.Fill()
	}
	if err != nil {
		return err
	}
	err = move(s.Name(), file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
			err = move(s.Name(), file)
		}
	}
	if err != nil {
		return err
	}
	return s.Close()
}

// Abort implements Stage.
func (s *dirStage) Abort() {
	if !s.done {
		s.done = true
		_ = s.Close()
		os.Remove(s.Name()) // ignore the error: after a rename, the name no longer exists
	}
}

// Put implements Objects. It keeps an existing object with equal content, because
// replacing an object that a version references requires a sync.
func (d *Dir) Put(ctx context.Context, key string, data []byte) error {
	if n, err := d.Size(ctx, key); err == nil && n == int64(len(data)) {
		if existing, err := readAll(ctx, d, key, n); err == nil && bytes.Equal(existing, data) {
			return nil
		}
	}
	s, err := d.newStage()
	if err != nil {
		return err
	}
	defer s.Abort()
	if _, err := s.Write(data); err != nil {
		return err
	}
	return s.Publish(ctx, key)
}

// Create implements Objects. One sync of the file system makes all earlier
// writes durable.
func (d *Dir) Create(_ context.Context, key string, data []byte) error {
	s, err := d.newStage()
	if err != nil {
		return err
	}
	defer s.Abort()
	if _, err := s.Write(data); err != nil {
		return err
	}
	if err := d.sync(); err != nil {
		return err
	}
	if err := s.finish(key, os.Link); errors.Is(err, fs.ErrExist) {
		return ErrTaken
	} else if err != nil {
		return err
	}
	return d.sync()
}

func (d *Dir) sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", d.path, err)
	}
	return nil
}

// Get implements Objects. It opens only regular files and does not follow
// links.
func (d *Dir) Get(_ context.Context, key string) (io.ReadCloser, error) {
	file, err := d.filePath(key)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrMissing
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	case err != nil:
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%w: %s is not a file", errBroken, key))
	}
	return f, nil
}

// Size implements Objects.
func (d *Dir) Size(_ context.Context, key string) (int64, error) {
	file, err := d.filePath(key)
	if err != nil {
		return 0, err
	}
	st, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, ErrMissing
	case err != nil:
		return 0, err
	case !st.Mode().IsRegular():
		return 0, fmt.Errorf("%w: %s is not a file", errBroken, key)
	}
	return st.Size(), nil
}

// List implements Objects.
func (d *Dir) List(_ context.Context, prefix string, f func(key string) error) error {
	root, err := d.filePath(prefix)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rest, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return f(strings.TrimSuffix(prefix, "/") + "/" + filepath.ToSlash(rest))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Delete implements Objects.
func (d *Dir) Delete(_ context.Context, key string) error {
	file, err := d.filePath(key)
	if err != nil {
		return err
	}
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Hold implements Objects. It also excludes other processes that use the
// directory.
func (d *Dir) Hold(ctx context.Context, key string, exclusive bool) (func(), error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	file := filepath.Join(d.path, holdDir, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, maxLockWait) {
		release, err := d.tryHold(ctx, file, key, exclusive)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return release, err
		}
		// Another process holds the lock. Release this process's lock during
		// the wait, so that other callers are not blocked.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// maxLockWait is the longest time between two attempts to get the lock of
// another process.
const maxLockWait = 100 * time.Millisecond

// tryHold takes the lock of this process, and tries to take that of the
// directory.
func (d *Dir) tryHold(ctx context.Context, file, key string, exclusive bool) (func(), error) {
	unlock, err := d.holds.take(ctx, key, exclusive)
	if err != nil {
		return nil, err
	}
	lockMode := unix.LOCK_SH
	if exclusive {
		lockMode = unix.LOCK_EX
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(f.Fd()), lockMode|unix.LOCK_NB)
		}
	}
	if err != nil {
		f.Close()
		unlock()
		return nil, err
	}
	return func() {
		f.Close()
		unlock()
	}, nil
}

// readAll reads an object up to a size limit.
func readAll(ctx context.Context, o Objects, key string, limit int64) ([]byte, error) {
	r, err := o.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%w: object %s has more than %d bytes", errBroken, key, limit)
	}
	return b.Bytes(), err
}
