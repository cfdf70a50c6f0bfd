package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// move renames. Between file systems, as /tmp and the root are two, it copies
// and removes.
func move(c fsCall) error {
	if c.To == nil {
		return invalid("a move without a target")
	}
	from, err := locate(c.Path)
	if err != nil {
		return err
	}
	to, err := c.target(*c.To)
	if err != nil {
		return err
	}
	st, err := os.Lstat(from.name)
	if err != nil {
		return pathError(from.name, err)
	}
	if err := to.makeDirs(path.Dir(to.name)); err != nil {
		return err
	}
	if st.IsDir() && within(from.name, path.Dir(to.name)) {
		return badPath("path '%s' cannot be moved into itself", from.name)
	}
	// Not os.Rename: it keeps directories, even empty ones, from being replaced.
	err = rename(from.name, to.name)
	if err == syscall.EXDEV {
		err = carryOver(from.name, to.name)
	}
	if err != nil {
		return moveError(from.name, to.name, err)
	}
	return c.sendEntry(to.name)
}

func rename(from, to string) error {
	for {
		if err := syscall.Rename(from, to); err != syscall.EINTR {
			return err
		}
	}
}

// moveError tells what is wrong with a move, of which both paths were there.
func moveError(from, to string, err error) error {
	switch errno, _ := errors.AsType[syscall.Errno](err); errno {
	case syscall.ENOTDIR:
		return badPath("path '%s' is not a directory", to)
	case syscall.ENOENT, syscall.EBUSY:
		return pathError(from, err)
	case syscall.EINVAL:
		return badPath("path '%s' cannot be moved into itself", from)
	default:
		return pathError(to, err)
	}
}

// within reports whether a directory is dir or below it, whatever links lead
// there.
func within(dir, name string) bool {
	dir, _ = filepath.EvalSymlinks(dir)
	name, _ = filepath.EvalSymlinks(name)
	return dir == name || dir != "" && strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// carryOver moves to another file system. The copy is made beside its place,
// so that nobody sees half of it.
func carryOver(from, to string) error {
	above, err := filepath.EvalSymlinks(path.Dir(from))
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(path.Dir(to), ".brig-*")
	if err != nil {
		return err
	}
	defer removeAll(tmp)
	from, made := path.Join(above, path.Base(from)), path.Join(tmp, "moved")
	if err := duplicate(from, made, mounts()); err != nil {
		return err
	}
	if err := rename(made, to); err != nil {
		return err
	}
	return removeAll(from)
}

// mounts lists where file systems are mounted. The numbers of devices do not
// tell: an overlay has several.
func mounts() map[string]bool {
	b, _ := os.ReadFile("/proc/self/mounts")
	out := map[string]bool{"/": true}
	for line := range strings.Lines(string(b)) {
		if part := strings.Fields(line); len(part) > 1 {
			out[part[1]] = true
		}
	}
	return out
}

// duplicate copies a file, a link or a directory with all that is in it, and
// who owns it, its mode, time and metadata. It enters no mount.
func duplicate(from, to string, mounts map[string]bool) error {
	if mounts[from] {
		return pathError(from, syscall.EBUSY)
	}
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case st.IsDir():
		err = duplicateDir(from, to, mounts)
	case st.Mode().IsRegular():
		err = duplicateFile(from, to)
	case st.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default:
		return badPath("path '%s' is neither a file nor a directory and cannot leave its file system", from)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && err == nil {
		err = os.Lchown(to, int(sys.Uid), int(sys.Gid))
	}
	if err != nil || st.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	if err := os.Chmod(to, st.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		return err
	}
	return os.Chtimes(to, st.ModTime(), st.ModTime())
}

func duplicateDir(from, to string, mounts map[string]bool) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	d, err := openDir(from)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	for _, name := range names {
		if err == nil {
			err = duplicate(path.Join(from, name), path.Join(to, name), mounts)
		}
	}
	return err
}

func duplicateFile(from, to string) error {
	src, _, err := openRegular(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if m := metadata(from); err == nil && m != nil {
		err = setMetadata(dst, m)
	}
	return errors.Join(err, dst.Close())
}
