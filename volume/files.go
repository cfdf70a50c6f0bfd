package volume

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// Files accesses the files of one volume. It implements brig.VolumeFiles.
type Files struct{ root *os.File }

var _ brig.VolumeFiles = (*Files)(nil)

// parent opens the directory that contains a path, and returns the name in it. The name of the root
// is ".".
func (f *Files) parent(p string) (dir *os.File, name string, err error) {
	dirName, name := path.Split(p)
	dir, err = open(f.root, path.Clean(dirName), unix.O_PATH|unix.O_DIRECTORY, 0)
	return dir, name, err
}

// Stat implements brig.VolumeFiles.
func (f *Files) Stat(_ context.Context, p string) (*brig.VolumeEntry, error) {
	p, err := clean(p)
	if err != nil {
		return nil, err
	}
	dir, name, err := f.parent(p)
	if err != nil {
		return nil, errorOf(err, p)
	}
	defer dir.Close()
	e, err := stat(dir, name, p)
	return e, errorOf(err, p)
}

// stat describes a name in a directory. p is its path from the root.
func stat(dir *os.File, name, p string) (*brig.VolumeEntry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	e := entryOf(&st, p)
	if e.Type == brig.Symlink {
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), name, b)
		if err != nil {
			return nil, err
		}
		e.Target = string(b[:n])
	}
	return e, nil
}

func entryOf(st *unix.Stat_t, p string) *brig.VolumeEntry {
	at := func(t unix.Timespec) time.Time { return time.Unix(t.Unix()).UTC() }
	e := &brig.VolumeEntry{
		Path: absolute(p), Name: path.Base(absolute(p)), Size: st.Size, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		Accessed: at(st.Atim), Modified: at(st.Mtim), Changed: at(st.Ctim), Type: brig.OtherFile,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = brig.RegularFile
	case unix.S_IFDIR:
		e.Type = brig.Directory
	case unix.S_IFLNK:
		e.Type = brig.Symlink
	}
	return e
}

// describe returns the entry of an open file.
func describe(f *os.File, p string) (*brig.VolumeEntry, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	return entryOf(&st, p), nil
}

// openFile opens a regular file. It first opens the path without access to the content, because to
// open a device file or a pipe can have effects.
func (f *Files) openFile(p string, flags uint64) (_ *os.File, _ *brig.VolumeEntry, err error) {
	found, err := open(f.root, p, unix.O_PATH, 0)
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	e, err := describe(found, p)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(e); err != nil {
		return nil, nil, err
	}
	file, err := open(f.root, p, flags, 0)
	if err != nil {
		return nil, nil, err
	}
	// A sandbox may have replaced the file since.
	if e, err = describe(file, p); err == nil {
		err = checkRegular(e)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, e, nil
}

func checkRegular(e *brig.VolumeEntry) error {
	switch e.Type {
	case brig.RegularFile:
		return nil
	case brig.Directory:
		return unix.EISDIR
	}
	err := brig.Errorf(brig.FailedPrecondition, "the path %q is not a regular file", brig.Clip(e.Path, 200))
	err.Field = "path"
	return err
}

// Read implements brig.VolumeFiles.
func (f *Files) Read(_ context.Context, p string) (*brig.VolumeEntry, io.ReadCloser, error) {
	p, err := clean(p)
	if err != nil {
		return nil, nil, err
	}
	file, e, err := f.openFile(p, unix.O_RDONLY)
	if err != nil {
		return nil, nil, errorOf(err, p)
	}
	return e, &content{io.LimitReader(file, e.Size), file}, nil
}

// content is the content of a file, up to the size that it had when it was opened.
type content struct {
	io.Reader
	io.Closer
}

// Write implements brig.VolumeFiles.
func (f *Files) Write(_ context.Context, p string, o brig.VolumeWrite, r io.Reader) (*brig.VolumeEntry, error) {
	p, err := clean(p)
	if err != nil {
		return nil, err
	}
	file, err := f.create(p, o)
	if err != nil {
		return nil, errorOf(err, p)
	}
	defer file.Close()
	if _, err := io.Copy(file, r); err != nil {
		return nil, errorOf(err, p)
	}
	e, err := describe(file, p)
	return e, errorOf(err, p)
}

// create opens a file for writing, with its owner and its mode. Unless o.Force is set, the file must not
// exist.
func (f *Files) create(p string, o brig.VolumeWrite) (*os.File, error) {
	for range openTries {
		if o.Force {
			file, _, err := f.openFile(p, unix.O_WRONLY)
			if err == nil {
				if err = errors.Join(file.Truncate(0), setAttributes(file, o.VolumeAttributes)); err != nil {
					file.Close()
					return nil, err
				}
				return file, nil
			}
			if !errors.Is(err, unix.ENOENT) {
				return nil, err
			}
			if dir := path.Dir(p); dir != "." {
				if err := f.makeParents(dir, brig.VolumeAttributes{UID: o.UID, GID: o.GID}); err != nil {
					return nil, err
				}
			}
		}
		file, err := open(f.root, p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if o.Force && errors.Is(err, unix.EEXIST) { // a sandbox created it meanwhile, or it is a link to nothing
			if e, serr := f.Stat(context.Background(), p); serr == nil && e.Type == brig.Symlink { //nolint:forbidigo // no call to the outside
				return nil, unix.ENOENT
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := setAttributes(file, newAttributes(o.VolumeAttributes, 0o644)); err != nil {
			file.Close()
			return nil, err
		}
		return file, nil
	}
	return nil, unix.EAGAIN
}

// newAttributes adds the defaults for a new path.
func newAttributes(a brig.VolumeAttributes, mode uint32) brig.VolumeAttributes {
	owner := uint32(brig.VolumeOwner)
	if a.UID == nil {
		a.UID = &owner
	}
	if a.GID == nil {
		a.GID = &owner
	}
	if a.Mode == nil {
		a.Mode = &mode
	}
	return a
}

// setAttributes changes what is set in a. A change of the owner clears bits of the mode, so the mode
// is set last.
func setAttributes(file *os.File, a brig.VolumeAttributes) error {
	if a.UID != nil || a.GID != nil {
		if err := unix.Fchown(int(file.Fd()), idOrKeep(a.UID), idOrKeep(a.GID)); err != nil {
			return err
		}
	}
	if a.Mode != nil {
		return unix.Fchmod(int(file.Fd()), *a.Mode&0o7777)
	}
	return nil
}

// idOrKeep returns the ID for a system call, or -1 to keep the one that is set.
func idOrKeep(id *uint32) int {
	if id == nil {
		return -1
	}
	return int(*id)
}

// SetAttributes implements brig.VolumeFiles.
func (f *Files) SetAttributes(_ context.Context, p string, a brig.VolumeAttributes) (*brig.VolumeEntry, error) {
	p, err := clean(p)
	if err != nil {
		return nil, err
	}
	// Only regular files and directories have descriptors that can be changed and are safe to open.
	file, err := open(f.root, p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		file, _, err = f.openFile(p, unix.O_RDONLY)
	}
	if err != nil {
		return nil, errorOf(err, p)
	}
	defer file.Close()
	if err := setAttributes(file, a); err != nil {
		return nil, errorOf(err, p)
	}
	e, err := describe(file, p)
	return e, errorOf(err, p)
}

// MakeDir implements brig.VolumeFiles.
func (f *Files) MakeDir(_ context.Context, p string, o brig.VolumeWrite) (*brig.VolumeEntry, error) {
	p, err := clean(p)
	if err != nil {
		return nil, err
	}
	if o.Force {
		if dir := path.Dir(p); dir != "." {
			if err := f.makeParents(dir, brig.VolumeAttributes{UID: o.UID, GID: o.GID}); err != nil {
				return nil, errorOf(err, p)
			}
		}
	}
	e, err := f.makeDir(p, o.VolumeAttributes)
	if o.Force && errors.Is(err, unix.EEXIST) {
		dir, err := open(f.root, p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, errorOf(err, p)
		}
		defer dir.Close()
		if err := setAttributes(dir, o.VolumeAttributes); err != nil {
			return nil, errorOf(err, p)
		}
		e, err = describe(dir, p)
		return e, errorOf(err, p)
	}
	return e, errorOf(err, p)
}

// makeDir creates one directory.
func (f *Files) makeDir(p string, a brig.VolumeAttributes) (*brig.VolumeEntry, error) {
	parent, name, err := f.parent(p)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if name == "." {
		return nil, unix.EEXIST
	}
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o700); err != nil {
		return nil, err
	}
	dir, err := open(f.root, p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := setAttributes(dir, newAttributes(a, 0o755)); err != nil {
		return nil, err
	}
	return describe(dir, p)
}

// makeParents creates a directory and its parents, unless they exist.
func (f *Files) makeParents(p string, a brig.VolumeAttributes) error {
	dir, err := open(f.root, p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		return dir.Close()
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	for end := range len(p) + 1 {
		if end < len(p) && p[end] != '/' {
			continue
		}
		if _, err := f.makeDir(p[:end], a); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}
