package volume

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// namesPerRead is the number of names that a walk reads from a directory at once.
const namesPerRead = 256

// maxDepth bounds the levels of a list, because a directory of each level is open meanwhile.
const maxDepth = 256

// maxListBytes bounds the names and the targets of links in a list. A guest can make paths of 64 KiB,
// so the number of entries does not bound the memory.
const maxListBytes = 32 << 20

// List implements brig.VolumeFiles.
func (f *Files) List(ctx context.Context, p string, depth int) ([]*brig.VolumeEntry, error) {
	p, err := clean(p)
	if err != nil {
		return nil, err
	}
	if depth < 1 || depth > maxDepth {
		return nil, brig.InvalidField("depth", "%d is out of bounds", depth).WithHint("give 1 to %d", maxDepth)
	}
	dir, err := open(f.root, p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, errorOf(err, p)
	}
	var l listing
	if err := l.add(ctx, dir, p, depth); err != nil {
		return nil, errorOf(err, p)
	}
	slices.SortFunc(l.entries, func(a, b *brig.VolumeEntry) int { return strings.Compare(a.Path, b.Path) })
	return l.entries, nil
}

// listing collects the entries of directories.
type listing struct {
	entries []*brig.VolumeEntry
	bytes   int // the sum of the lengths of paths and targets
}

// add adds the entries of a directory, which it closes.
func (l *listing) add(ctx context.Context, dir *os.File, p string, depth int) error {
	defer dir.Close()
	from := len(l.entries)
	err := eachName(ctx, dir, func(name string) error {
		e, err := stat(dir, name, path.Join(p, name))
		if errors.Is(err, unix.ENOENT) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		l.entries, l.bytes = append(l.entries, e), l.bytes+len(e.Path)+len(e.Target)
		if l.bytes > maxListBytes {
			return brig.Errorf(brig.FailedPrecondition, "the paths of the entries have more than %s", brig.FormatBytes(maxListBytes)).WithHint("list a smaller directory or fewer levels")
		}
		if len(l.entries) > brig.MaxEntries {
			return brig.Errorf(brig.FailedPrecondition, "there are more than %d entries", brig.MaxEntries).WithHint("list a smaller directory or fewer levels")
		}
		return nil
	})
	if depth == 1 || err != nil {
		return err
	}
	for _, e := range l.entries[from:] {
		if e.Type != brig.Directory {
			continue
		}
		sub, err := openChild(dir, e.Name)
		if err != nil {
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
				continue // it was removed or replaced meanwhile
			}
			return err
		}
		if err := l.add(ctx, sub, strings.TrimPrefix(e.Path, "/"), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// openChild opens a subdirectory for reading.
func openChild(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachName calls f for each name in a directory.
func eachName(ctx context.Context, dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(namesPerRead)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// Remove implements brig.VolumeFiles.
func (f *Files) Remove(ctx context.Context, p string) error {
	p, err := clean(p)
	if err != nil {
		return err
	}
	if p == "." {
		return brig.InvalidField("path", "the root of a volume cannot be removed").WithHint("remove what is in it, or the volume")
	}
	parent, name, err := f.parent(p)
	if err != nil {
		return errorOf(err, p)
	}
	defer parent.Close()
	return errorOf(removeTree(ctx, parent, name), p)
}

// maxRemovedDepth bounds the levels of a tree that is removed, because the server remembers the way.
const maxRemovedDepth = 200_000

// removeTree removes a name in a directory, with all that is below it. A tree can be deeper than a
// process can have files open, so at most two directories are open, and the way up is "..". The walk
// compares the identities of directories, because a sandbox can move them.
func removeTree(ctx context.Context, parent *os.File, name string) error {
	err := unlink(parent, name)
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	type step struct {
		dev, ino uint64 // of the directory that contains name
		name     string
	}
	var way []step
	at, err := duplicate(parent)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	for {
		// A guest can fill directories as fast as they are emptied.
		if err := context.Cause(ctx); err != nil {
			return err
		}
		// Enter the directory, and remove what can be removed at once.
		dev, ino, err := identity(at)
		if err != nil {
			return err
		}
		next, err := openChild(at, name)
		if err != nil {
			return err
		}
		at.Close()
		if at, way = next, append(way, step{dev, ino, name}); len(way) > maxRemovedDepth {
			return brig.Errorf(brig.FailedPrecondition, "the directory has more than %d levels", maxRemovedDepth).WithHint("remove a directory further down first")
		}
		deeper, err := removeEntries(ctx, at)
		if err != nil {
			return err
		}
		if deeper != "" {
			name = deeper
			continue
		}
		// Return to directories that are not empty.
		for deeper == "" {
			last := way[len(way)-1]
			up, err := openChild(at, "..")
			if err != nil {
				return err
			}
			at.Close()
			at = up
			if dev, ino, err = identity(at); err != nil {
				return err
			}
			if dev != last.dev || ino != last.ino {
				return brig.Errorf(brig.Unavailable, "a directory was moved during its removal").WithHint("try again")
			}
			way = way[:len(way)-1]
			switch err := unlink(at, last.name); {
			case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST): // new files
				deeper = last.name
			case err != nil && !errors.Is(err, unix.ENOENT):
				return err
			case len(way) == 0:
				return nil
			default:
				if deeper, err = removeEntries(ctx, at); err != nil {
					return err
				}
			}
		}
		name = deeper
	}
}

// removeEntries removes the entries of a directory, up to a subdirectory that is not empty, whose name
// it returns.
func removeEntries(ctx context.Context, dir *os.File) (deeper string, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	stop := errors.New("stop")
	err = eachName(ctx, dir, func(name string) error {
		switch err := unlink(dir, name); {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			deeper = name
			return stop
		case err != nil && !errors.Is(err, unix.ENOENT):
			return err
		}
		return nil
	})
	if errors.Is(err, stop) {
		err = nil
	}
	return deeper, err
}

// unlink removes a name that is not a directory, or an empty directory.
func unlink(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	return err
}

func identity(f *os.File) (dev, ino uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	return st.Dev, st.Ino, err
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
