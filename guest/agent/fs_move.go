package agent

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// move renames a file. Between file systems, such as /tmp and the root, it
// copies the file and removes the original.
func move(c fsCall) error {
	if c.To == nil {
		return newInvalidError("a move without a target")
	}
	from, err := locate(c.Path)
	if err != nil {
		return err
	}
	to, err := locate(*c.To)
	if err != nil {
		return err
	}
	var e wire.Entry
	err = c.withRights(func() (err error) {
		e, err = relocate(from.name, to)
		return err
	})
	return c.sendEntry(to.name, e, err)
}

func relocate(from string, to place) (e wire.Entry, err error) {
	st, err := os.Lstat(from)
	if err != nil {
		return e, pathError(from, err)
	}
	if err := to.makeDirs(path.Dir(to.name)); err != nil {
		return e, err
	}
	if st.IsDir() && isWithin(from, path.Dir(to.name)) {
		return e, newPathError("path '%s' cannot be moved into itself", from)
	}
	// Do not use os.Rename, which refuses to replace directories, even empty
	// ones.
	err = rename(from, to.name)
	if err == syscall.EXDEV {
		err = moveAcross(from, to.name)
	}
	if err != nil {
		return e, moveError(from, to.name, err)
	}
	return (&accounts{}).statEntry(to.name)
}

func rename(from, to string) error {
	for {
		if err := syscall.Rename(from, to); err != syscall.EINTR {
			return err
		}
	}
}

// moveError returns a specific error for a failed move between two existing paths, or err.
func moveError(from, to string, err error) error {
	switch errno, _ := errors.AsType[syscall.Errno](err); errno {
	case syscall.ENOTDIR:
		return newPathError("path '%s' is not a directory", to)
	case syscall.ENOENT, syscall.EBUSY:
		return pathError(from, err)
	case syscall.EINVAL:
		return newPathError("path '%s' cannot be moved into itself", from)
	default:
		return pathError(to, err)
	}
}

// isWithin reports whether name is dir or below it, after links are resolved.
func isWithin(dir, name string) bool {
	dir, _ = filepath.EvalSymlinks(dir)
	name, _ = filepath.EvalSymlinks(name)
	return dir == name || dir != "" && strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// moveAcross moves a file to another file system. It creates the copy in a
// temporary directory beside the target, so that no program sees a partial
// copy.
func moveAcross(from, to string) (err error) {
	above, err := filepath.EvalSymlinks(path.Dir(from))
	if err != nil {
		return err
	}
	source, err := nofollow.Open(above)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := nofollow.Open(path.Dir(to))
	if err != nil {
		return err
	}
	defer target.Close()
	tmp := ".brig-" + strconv.FormatUint(rand.Uint64(), 36)
	if err := target.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer func() { _ = target.RemoveAll(tmp) }()
	dir, err := target.Dir(tmp)
	if err != nil {
		return err
	}
	defer dir.Close()
	d := duplicator{mounts: readMounts()}
	if err := d.copy(source, path.Base(from), path.Join(above, path.Base(from)), dir, "moved"); err != nil {
		return err
	}
	if err := dir.Rename("moved", target, path.Base(to)); err != nil {
		return err
	}
	return source.RemoveAll(path.Base(from))
}

// readMounts returns the mount points. Device numbers cannot identify them, because
// an overlay has several device numbers.
func readMounts() map[string]bool {
	b, _ := os.ReadFile("/proc/self/mounts")
	out := map[string]bool{"/": true}
	for line := range strings.Lines(string(b)) {
		if part := strings.Fields(line); len(part) > 1 {
			out[part[1]] = true
		}
	}
	return out
}

// duplicator copies a file, a link or a directory tree, including the owner,
// mode, time and metadata. It does not enter mounts or follow links.
type duplicator struct{ mounts map[string]bool }

// copy copies the file with this name in a directory to another directory. full
// is the path of the file.
func (d duplicator) copy(from *nofollow.Dir, name, full string, to *nofollow.Dir, as string) error {
	if d.mounts[full] {
		return pathError(full, syscall.EBUSY)
	}
	st, err := from.Stat(name)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return d.copyDir(from, name, full, to, as)
	case st.IsRegular():
		return copyFile(from, name, full, to, as)
	case st.IsLink():
		target, err := from.Readlink(name)
		if err == nil {
			err = to.Symlink(target, as)
		}
		if err == nil {
			err = ignoreNotPermitted(to.Lchown(as, int(st.Uid), int(st.Gid)))
		}
		return err
	default:
		return newPathError("path '%s' is neither a file nor a directory and cannot leave its file system", full)
	}
}

// ignoreNotPermitted ignores a missing permission to change the owner of a copy. Like with mv, the
// account then owns the copy.
func ignoreNotPermitted(err error) error {
	if err == syscall.EPERM {
		return nil
	}
	return err
}

func (d duplicator) copyDir(from *nofollow.Dir, name, full string, to *nofollow.Dir, as string) error {
	src, err := from.Dir(name)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Self()
	if err != nil {
		return err
	}
	if err := to.Mkdir(as, 0o700); err != nil {
		return err
	}
	dst, err := to.Dir(as)
	if err != nil {
		return err
	}
	defer dst.Close()
	names, err := src.Names(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := d.copy(src, n, path.Join(full, n), dst, n); err != nil {
			return err
		}
	}
	if err := ignoreNotPermitted(dst.Chown(int(st.Uid), int(st.Gid))); err != nil {
		return err
	}
	if err := dst.Chmod(st.Mode & 0o7777); err != nil {
		return err
	}
	return dst.SetTime(st.Mtim)
}

func copyFile(from *nofollow.Dir, name, full string, to *nofollow.Dir, as string) error {
	src, err := from.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := statOpen(src)
	if err == nil {
		err = requireRegular(full, st)
	}
	if err != nil {
		return err
	}
	if isOfProcess(src) {
		return newProcessFileError(full)
	}
	dst, err := to.Open(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if m := readOpenMetadata(src); err == nil && m != nil {
		err = setMetadata(dst, m)
	}
	if err == nil {
		err = ignoreNotPermitted(fchown(dst, st))
	}
	if err == nil {
		err = errors.Join(nofollow.Fchmod(dst, st.Mode&0o7777), nofollow.SetTime(dst, st.Mtim))
	}
	return errors.Join(err, dst.Close())
}

func fchown(f *os.File, st nofollow.Stat) error {
	err := f.Chown(int(st.Uid), int(st.Gid))
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// remove removes the file or the directory tree at the path.
func remove(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	if p.name == "/" {
		return newPathError("path '/' cannot be removed")
	}
	return pathError(p.name, c.withRights(func() error {
		// Otherwise everything below a mount point would be removed before the
		// kernel refuses to remove the mount point itself.
		if above, err := filepath.EvalSymlinks(path.Dir(p.name)); err == nil && readMounts()[path.Join(above, path.Base(p.name))] {
			return syscall.EBUSY
		}
		dir, err := nofollow.Open(path.Dir(p.name))
		if err == nil {
			err = dir.RemoveAll(path.Base(p.name))
			dir.Close()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		return err
	}))
}
