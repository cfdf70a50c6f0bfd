package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"unsafe"
)

// remove removes what is at the path, with all that is below.
func remove(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	if p.name == "/" {
		return badPath("path '/' cannot be removed")
	}
	// All below a mount would go before it is found that the mount stays.
	if above, err := filepath.EvalSymlinks(path.Dir(p.name)); err == nil && mounts()[path.Join(above, path.Base(p.name))] {
		return pathError(p.name, syscall.EBUSY)
	}
	return pathError(p.name, removeAll(p.name))
}

// removeAll is os.RemoveAll, which opens what it cannot unlink with
// O_DIRECTORY and O_NOFOLLOW. gVisor follows a link then, and the links of
// /proc lead to everything.
func removeAll(name string) error {
	dir, err := openDir(path.Dir(name))
	if err == nil {
		err = removeAt(dir, path.Base(name))
		dir.Close()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// openDir opens a directory, and does not wait if it is a pipe by now.
func openDir(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

// removeAt removes a name in an open directory, with all that is below. It
// returns the first error, and removes what else it can beside it.
func removeAt(dir *os.File, name string) error {
	err := unlink(dir, name, 0)
	if err == nil || err == syscall.ENOENT {
		return nil
	}
	fd, openErr := syscall.Openat(int(dir.Fd()), name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if openErr != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	if st, statErr := d.Stat(); statErr != nil || !st.IsDir() {
		return err
	}
	// A program that goes on to make files does not keep it busy for ever.
	err = nil
	for range 1000 {
		names, readErr := d.Readdirnames(10_000)
		for _, n := range names {
			if e := removeAt(d, n); err == nil {
				err = e
			}
		}
		if err != nil {
			return err
		}
		if len(names) == 0 {
			if !errors.Is(readErr, io.EOF) {
				return readErr
			}
			if err := unlink(dir, name, atRemoveDir); err != syscall.ENOTEMPTY {
				return err
			}
		}
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return syscall.ENOTEMPTY
}

// atRemoveDir makes unlinkat remove a directory.
const atRemoveDir = 0x200

func unlink(dir *os.File, name string, flags int) error {
	n, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_UNLINKAT, dir.Fd(), uintptr(unsafe.Pointer(n)), uintptr(flags)); errno != 0 {
		return errno
	}
	return nil
}
