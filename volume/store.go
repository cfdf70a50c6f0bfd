package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/diskimage"
)

// suffix ends the names of images. preparedSuffix follows it until the record of the volume exists.
const (
	suffix         = ".ext4"
	preparedSuffix = ".new"
)

// idleMount is how long the host keeps a volume mounted after a call, because clients often make
// several calls in a row.
const idleMount = 5 * time.Second

// Store keeps the images of volumes in a directory.
type Store struct {
	dir string
	err error // why there can be no volumes; nil if there can

	mu     sync.Mutex // guards the fields below
	mounts map[string]*mount
	closed bool
}

// mount is a mounted volume.
type mount struct {
	once sync.Once
	root *os.File
	err  error
	uses int
	idle *time.Timer // unmounts; nil while it is in use
}

// Open returns a Store. A machine that cannot have volumes is no error; see Check.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, mounts: map[string]*mount{}, err: diskimage.Check()}
	if s.err != nil {
		return s, nil //nolint:nilerr // Check returns the reason
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of volumes: %w", err)
	}
	var err error
	if s.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("open the folder of volumes: %w", err)
	}
	return s, nil
}

// Close unmounts all volumes. Sandboxes keep their mounts.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	var idle []*mount
	for id, m := range s.mounts {
		if m.uses == 0 {
			s.dropLocked(id, m)
			idle = append(idle, m)
		}
	}
	s.mu.Unlock()
	for _, m := range idle {
		m.unmount()
	}
}

// Check returns Unimplemented with the reason if this machine cannot have volumes.
func (s *Store) Check() error {
	if s.err == nil {
		return nil
	}
	return brig.Errorf(brig.Unimplemented, "this server cannot keep volumes: %v", s.err).
		WithHint("run brig serve as root on a machine with loop devices and the command mke2fs (package e2fsprogs); a systemd unit must allow the devices, see brig.service")
}

// Image returns the path of the image of a volume.
func (s *Store) Image(id string) string { return filepath.Join(s.dir, id+suffix) }

// ImageFunc returns Image, or nil if there can be no volumes.
func (s *Store) ImageFunc() func(id string) string {
	if s.err != nil {
		return nil
	}
	return s.Image
}

// Prepare creates the image of a volume, which nobody can use before Commit. Everyone may write to its
// root, because the users of images differ.
func (s *Store) Prepare(ctx context.Context, id string, size int64) error {
	err := diskimage.Create(ctx, s.Image(id)+preparedSuffix, size, brig.VolumeOwner, 0o777)
	if errors.Is(err, unix.ENOSPC) {
		return errNoRoom()
	}
	return err
}

// Commit makes a prepared image usable.
func (s *Store) Commit(id string) error {
	if err := os.Rename(s.Image(id)+preparedSuffix, s.Image(id)); err != nil {
		return fmt.Errorf("commit volume: %w", err)
	}
	return nil
}

// Recover commits the prepared images of known volumes, and removes other prepared images. An image
// that belongs to no volume stays, because the records may come from a backup.
func (s *Store) Recover(known map[string]bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	var errs []error
	for _, e := range entries {
		id, prepared := strings.CutSuffix(e.Name(), suffix+preparedSuffix)
		switch {
		case prepared && known[id]:
			errs = append(errs, s.Commit(id))
		case prepared:
			errs = append(errs, os.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func errNoRoom() error {
	return brig.Errorf(brig.RateLimited, "the server's disk has no room for the volume").
		WithHint("remove volumes, or ask the operator for a larger disk")
}

// CheckRoom returns an error if the disk has no room for another volume, when all of the given volumes
// are full.
func (s *Store) CheckRoom(all []*brig.Volume, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return fmt.Errorf("read free space of the disk: %w", err)
	}
	free := int64(st.Bavail) * st.Bsize
	for _, v := range all {
		used, err := s.Used(v.ID)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		free -= max(v.Size-used, 0)
	}
	if size > free {
		return errNoRoom()
	}
	return nil
}

// Used returns the disk space that a volume uses, in bytes.
func (s *Store) Used(id string) (int64, error) { return diskimage.Used(s.Image(id)) }

// Remove removes the image of a volume. It succeeds if the image does not exist.
func (s *Store) Remove(id string) error {
	s.mu.Lock()
	m := s.mounts[id]
	if m != nil && m.uses == 0 {
		s.dropLocked(id, m)
		go m.unmount() // a sync of the volume, which the caller must not wait for
	}
	s.mu.Unlock()
	for _, name := range []string{s.Image(id), s.Image(id) + preparedSuffix} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove volume: %w", err)
		}
	}
	return nil
}

// Files returns the files of a volume. The caller calls release when it no longer uses them.
func (s *Store) Files(id string) (_ *Files, release func(), err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, brig.Errorf(brig.Unavailable, "the server is stopping")
	}
	m := s.mounts[id]
	if m == nil {
		m = &mount{}
		s.mounts[id] = m
	}
	m.uses++
	if m.idle != nil {
		m.idle.Stop()
		m.idle = nil
	}
	s.mu.Unlock()
	m.once.Do(func() { m.root, m.err = diskimage.Mount(s.Image(id), false) })
	release = sync.OnceFunc(func() { s.release(id, m) })
	if m.err != nil {
		release()
		if errors.Is(m.err, fs.ErrNotExist) { // a removal came between
			return nil, nil, brig.Errorf(brig.NotFound, "the volume was removed meanwhile")
		}
		return nil, nil, fmt.Errorf("mount volume: %w", m.err)
	}
	return &Files{root: m.root}, release, nil
}

// release ends a use of a mount.
func (s *Store) release(id string, m *mount) {
	s.mu.Lock()
	if m.uses--; m.uses > 0 {
		s.mu.Unlock()
		return
	}
	if m.err != nil || s.closed {
		s.dropLocked(id, m)
		s.mu.Unlock()
		m.unmount()
		return
	}
	m.idle = time.AfterFunc(idleMount, func() { s.unmountIdle(id, m) })
	s.mu.Unlock()
}

// unmountIdle unmounts a volume, unless a call uses it again.
func (s *Store) unmountIdle(id string, m *mount) {
	s.mu.Lock()
	if m.uses > 0 || s.mounts[id] != m {
		s.mu.Unlock()
		return
	}
	s.dropLocked(id, m)
	s.mu.Unlock()
	m.unmount()
}

// dropLocked forgets a mount that is not in use. The caller holds s.mu, and unmounts afterwards.
func (s *Store) dropLocked(id string, m *mount) {
	if m.idle != nil {
		m.idle.Stop()
	}
	delete(s.mounts, id)
}

// unmount ends a mount. The caller must not hold a lock: if it is the last mount of the volume, the
// kernel first writes what programs wrote, which can take minutes, and calls on other volumes must not
// wait for it.
func (m *mount) unmount() {
	if m.root != nil {
		m.root.Close()
	}
}
