package agent

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// makeDirectory creates a directory. It returns an "exists" error if the
// directory already exists.
func makeDirectory(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	var e wire.Entry
	err = c.withRights(func() (err error) {
		if err := p.makeDirs(path.Dir(p.name)); err != nil {
			return err
		}
		if err := os.Mkdir(p.name, 0o755); errors.Is(err, fs.ErrExist) {
			if err := requireExistingDir(p.name); err != nil {
				return err
			}
			return newFailure("exists", "path", "path '%s' already exists", p.name)
		} else if err != nil {
			return err
		}
		e, err = (&accounts{}).statEntry(p.name)
		return err
	})
	return c.sendEntry(p.name, e, err)
}

// makeDirs creates dir and its missing parents.
func (p place) makeDirs(dir string) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if parent := path.Dir(dir); parent != dir {
		if err := p.makeDirs(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return requireExistingDir(dir)
	} else if err != nil {
		return pathError(dir, err)
	}
	return nil
}

// requireExistingDir is like requireDir, for a path that exists but may be a dangling
// link.
func requireExistingDir(name string) error {
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return newPathError("path '%s' is not a directory", name)
	}
	return pathError(name, err)
}

// write writes the frames that follow the call to a file. If the frames end early, the file keeps
// the data that has arrived.
func write(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	var f *os.File
	// Write the open file with the agent's permissions, because the write waits
	// for the host.
	err = c.withRights(func() (err error) {
		if err = p.makeDirs(path.Dir(p.name)); err != nil {
			return err
		}
		if f, err = p.openForWrite(c.Mode & 0o777); err != nil {
			return err
		}
		if err = setMetadata(f, c.Metadata); err == nil {
			err = empty(f)
		}
		if err != nil {
			f.Close()
		}
		return err
	})
	if err != nil {
		return pathError(p.name, err)
	}
	defer f.Close()
	for {
		d, err := c.r.Read()
		if err != nil {
			return err
		}
		if d.Type == wire.TypeFilesEnd {
			break
		}
		if d.Type != wire.TypeFileData {
			return newInvalidError("a frame of type %d in a file", d.Type)
		}
		if _, err := f.Write(d.Payload); err != nil {
			return pathError(p.name, err)
		}
	}
	return c.sendOpen(p.name, f)
}

// empty truncates a file. It does not touch an empty file, because a watch
// would report a change.
func empty(f *os.File) error {
	st, err := f.Stat()
	if err == nil && st.Size() > 0 {
		err = f.Truncate(0)
	}
	return err
}

// sendOpen sends the entry of an open file. name is the path by which it was
// opened. If the path is a link, the entry describes the target.
func (c fsCall) sendOpen(name string, f *os.File) error {
	var e wire.Entry
	err := c.withRights(func() error {
		st, err := statOpen(f)
		if err == nil {
			e = (&accounts{}).describeOpen(name, f, st)
		}
		return err
	})
	return c.sendEntry(name, e, err)
}

// openForWrite opens a file for writing, and creates it if it does not exist. If mode
// is 0, an existing file keeps its mode.
func (p place) openForWrite(mode uint32) (*os.File, error) {
	_, err := os.Stat(p.name)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew && mode == 0 {
		mode = 0o644
	}
	f, st, err := openRegular(p.name, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	if isOnKernelFS(f) {
		// Reject all such files, which may include files of the agent's process or of the host's
		// kernel.
		f.Close()
		return nil, newPathError("path '%s' is the kernel's and not to be written", p.name)
	}
	// Set the mode of a new file even if the umask did not change it, so that
	// watches report a change of attributes. E2B's clients depend on that
	// event.
	if isNew || mode != 0 && st.Mode&0o7777 != mode {
		if err := f.Chmod(fs.FileMode(mode)); err != nil {
			f.Close()
			return nil, pathError(p.name, err)
		}
	}
	return f, nil
}

// compose joins several files. It creates the result under a temporary name
// beside the target, so that no program sees a partial result.
func compose(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	var e wire.Entry
	err = c.withRights(func() (err error) {
		e, err = p.compose(c.From)
		return err
	})
	return c.sendEntry(p.name, e, err)
}

func (p place) compose(from []wire.Path) (e wire.Entry, err error) {
	if st, err := os.Stat(p.name); err == nil && !st.Mode().IsRegular() {
		if st.IsDir() {
			return e, newPathError("path '%s' is a directory", p.name)
		}
		return e, newPathError("path '%s' is not a regular file", p.name)
	}
	if err := p.makeDirs(path.Dir(p.name)); err != nil {
		return e, err
	}
	dir, err := nofollow.Open(path.Dir(p.name))
	if err != nil {
		return e, err
	}
	f, err := createTemp(dir, path.Base(p.name), 0o644)
	if err != nil {
		return e, pathError(p.name, err)
	}
	defer f.close()
	dirs := map[string]*nofollow.Dir{}
	defer func() {
		for _, d := range dirs {
			d.Close()
		}
	}()
	sources, err := p.concatenate(f.File, from, dirs)
	if err == nil {
		err = f.commit()
	}
	if err != nil {
		return e, pathError(p.name, err)
	}
	for _, name := range sources {
		if err := dirs[path.Dir(name)].Remove(path.Base(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return e, pathError(name, err)
		}
	}
	st, err := statOpen(f.File)
	return (&accounts{}).describeOpen(p.name, f.File, st), err
}

// newFile is a file that has a temporary name in its directory until it is
// complete, so that no program sees partial content under the final name.
type newFile struct {
	*os.File
	dir       *nofollow.Dir
	name, tmp string
}

// createTemp creates a temporary file that will be renamed to name in the same
// directory. It takes ownership of dir, which is closed by close or on failure.
func createTemp(dir *nofollow.Dir, name string, mode uint32) (n *newFile, err error) {
	n = &newFile{dir: dir, name: name}
	for range 100 {
		tmp := ".brig-" + strconv.FormatUint(rand.Uint64(), 36)
		if n.File, err = dir.Open(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != syscall.EEXIST {
			n.tmp = tmp
			break
		}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	if err := n.Chmod(fs.FileMode(mode)); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// commit renames the file to its final name, and replaces an existing file.
func (n *newFile) commit() error {
	if err := n.dir.Rename(n.tmp, n.dir, n.name); err != nil {
		return err
	}
	n.tmp = ""
	return nil
}

// close closes the file, and removes it unless it was committed.
func (n *newFile) close() {
	if n.tmp != "" {
		_ = n.dir.Remove(n.tmp)
	}
	n.dir.Close()
	n.Close()
}

// concatenate writes the content of the sources to f. It opens the directories of
// the sources and returns the paths of the sources.
func (p place) concatenate(f *os.File, from []wire.Path, dirs map[string]*nofollow.Dir) (sources []string, err error) {
	var there nofollow.Stat
	isThere := syscall.Stat(p.name, &there.Stat_t) == nil
	for _, each := range from {
		source, err := locate(each)
		if err != nil {
			return nil, err
		}
		if dir := path.Dir(source.name); dirs[dir] == nil {
			d, err := nofollow.Open(dir)
			if err != nil {
				return nil, pathError(source.name, err)
			}
			dirs[dir] = d
		}
		s, st, err := openRegular(source.name, os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		switch {
		case source.name == p.name || isThere && st.Dev == there.Dev && st.Ino == there.Ino:
			err = newPathError("path '%s' cannot be composed of itself", p.name)
		case isOfProcess(s):
			err = newProcessFileError(source.name)
		default:
			_, err = io.Copy(f, s)
		}
		s.Close()
		if err != nil {
			return nil, pathError(p.name, err)
		}
		if !slices.Contains(sources, source.name) {
			sources = append(sources, source.name)
		}
	}
	return sources, nil
}
