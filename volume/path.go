package volume

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// maxPath bounds a path in bytes, as the kernel does.
const maxPath = unix.PathMax - 1

// openTries bounds the attempts to open a path while a sandbox moves directories.
const openTries = 1000

// clean returns a path without the slash at its beginning, or "." for the root.
func clean(p string) (string, error) {
	if len(p) > maxPath || strings.ContainsRune(p, 0) {
		return "", brig.InvalidField("path", "%q is no path", brig.Clip(p, 80)).WithHint("give at most %d bytes without NUL", maxPath)
	}
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	if p == "" {
		p = "."
	}
	return p, nil
}

// absolute returns a clean path with a slash at its beginning.
func absolute(p string) string { return path.Join("/", p) }

// open opens a path below a directory. Links lead to no place outside of it, and a pipe does not
// block.
func open(root *os.File, p string, flags uint64, mode uint32) (*os.File, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for n := 1; ; n++ {
		fd, err := unix.Openat2(int(root.Fd()), p, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), p), nil
		case n < openTries && (errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)): // a directory was moved meanwhile
			continue
		}
		return nil, err
	}
}

// errorOf converts an error of a call with a path.
func errorOf(err error, p string) error {
	p = brig.Clip(absolute(p), 200)
	wrong := func(format string, args ...any) error {
		e := brig.Errorf(brig.FailedPrecondition, format, args...)
		e.Field = "path"
		return e
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT):
		return brig.Errorf(brig.NotFound, "the volume has no path %q", p)
	case errors.Is(err, unix.EEXIST):
		return brig.Errorf(brig.AlreadyExists, "the path %q exists already", p).WithHint("give force to replace the content of a file")
	case errors.Is(err, unix.ENOTDIR):
		return wrong("a part of the path %q is not a directory", p)
	case errors.Is(err, unix.EISDIR):
		return wrong("the path %q is a directory", p)
	case errors.Is(err, unix.ELOOP):
		return wrong("the path %q has too many links", p)
	case errors.Is(err, unix.ENAMETOOLONG):
		return brig.InvalidField("path", "a name in the path is too long").WithHint("a name has at most 255 bytes")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return brig.Errorf(brig.FailedPrecondition, "the volume is full").WithHint("remove files, or use a larger volume")
	case errors.Is(err, unix.EAGAIN):
		return brig.Errorf(brig.Unavailable, "directories of the path %q are being moved", p).WithHint("try again")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.EACCES): // a pipe or a device that has replaced a file
		return wrong("the path %q is not a regular file", p)
	case errors.Is(err, unix.EFBIG):
		return wrong("the file %q would be too large for the file system", p)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EIO):
		return brig.Errorf(brig.Unavailable, "the volume cannot be written, because the server's disk had errors").
			WithHint("ask the operator to look at the kernel's log").Because(err)
	}
	return err
}
