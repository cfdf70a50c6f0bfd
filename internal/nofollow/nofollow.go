// Package nofollow accesses directories by descriptor, one path element at a
// time, and never follows symbolic links. It is for trees that untrusted
// programs modify concurrently.
//
// os.Root is not enough inside gVisor: it opens a directory with O_DIRECTORY
// and O_NOFOLLOW, and gVisor follows a final link when O_DIRECTORY is set. This
// package never passes both flags: it opens a name with O_NOFOLLOW alone and
// then checks that it is a directory. The package uses no library beyond
// package syscall, because the agent in the sandbox uses it.
package nofollow

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Flags of the *at system calls that package syscall does not define.
const (
	atSymlinkNoFollow = 0x100
	atRemoveDir       = 0x200
)

// Dir is an open directory. It is not safe for concurrent use.
type Dir struct {
	fd      int
	raw     []byte // buffer for entries in the kernel's format
	entries []byte // the part of raw that is not parsed yet
}

// Open opens a directory by its path. It follows links, except for magic links
// in /proc, which refer to descriptors of this process. It does not block when
// the path is a pipe.
func Open(name string) (*Dir, error) {
	fd, err := openPath(name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{fd: fd}, nil
}

// OpenFile opens a file by its path with the same rules as Open.
func OpenFile(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := openPath(name, flags|syscall.O_NONBLOCK|syscall.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openPath calls openat2 with RESOLVE_NO_MAGICLINKS. It falls back to openat
// where the kernel or a seccomp filter does not support openat2.
func openPath(name string, flags int, mode uint32) (int, error) {
	const sysOpenat2, noMagicLinks = 437, 0x02
	if flags&syscall.O_CREAT == 0 {
		mode = 0
	}
	how := struct{ flags, mode, resolve uint64 }{uint64(flags), uint64(mode), noMagicLinks}
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	cwd := atCWD // a variable, because a constant does not convert to uintptr
	for {
		fd, _, errno := syscall.Syscall6(sysOpenat2, uintptr(cwd), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
			continue
		case syscall.ENOSYS, syscall.EPERM: // some filters return EPERM
			return retry(func() (int, error) { return syscall.Open(name, flags, mode) })
		}
		return -1, errno
	}
}

const atCWD = -0x64

// retry calls f until it returns an error other than EINTR.
func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// checkElement returns an error unless name is a single path element.
func checkElement(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return syscall.EINVAL
	}
	return nil
}

// Close closes the directory.
func (d *Dir) Close() error { return syscall.Close(d.fd) }

// Open opens the named file in the directory. It does not follow a link, and
// does not wait for another process to open a pipe. The flag O_DIRECTORY is an
// error.
func (d *Dir) Open(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := d.open(name, flags, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d *Dir) open(name string, flags int, mode uint32) (int, error) {
	if err := checkElement(name); err != nil {
		return -1, err
	}
	if flags&syscall.O_DIRECTORY != 0 {
		return -1, syscall.EINVAL
	}
	return retry(func() (int, error) {
		return syscall.Openat(d.fd, name, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, mode)
	})
}

// Dir opens the named subdirectory. It returns ELOOP for a link and ENOTDIR for
// any other file.
func (d *Dir) Dir(name string) (*Dir, error) {
	fd, err := d.open(name, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	next := &Dir{fd: fd}
	st, err := next.Self()
	if err == nil && !st.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		_ = next.Close() // report the original error, not an error of Close
		return nil, err
	}
	return next, nil
}

// Walk opens the directory at a relative path below this one, element by
// element. "." opens the directory itself again.
func (d *Dir) Walk(name string) (*Dir, error) {
	fd, err := syscall.Openat(d.fd, ".", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	current := &Dir{fd: fd}
	if name == "." || name == "" {
		return current, nil
	}
	for step := range strings.SplitSeq(name, "/") {
		next, err := current.Dir(step)
		_ = current.Close() // opened only for the walk
		if err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

// Stat is the metadata of a file.
type Stat struct{ syscall.Stat_t }

// IsDir reports whether the file is a directory.
func (s *Stat) IsDir() bool { return s.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// IsRegular reports whether the file is regular.
func (s *Stat) IsRegular() bool { return s.Mode&syscall.S_IFMT == syscall.S_IFREG }

// IsLink reports whether the file is a symbolic link.
func (s *Stat) IsLink() bool { return s.Mode&syscall.S_IFMT == syscall.S_IFLNK }

// Self returns the metadata of the directory itself.
func (d *Dir) Self() (st Stat, err error) {
	_, err = retry(func() (int, error) { return 0, syscall.Fstat(d.fd, &st.Stat_t) })
	return st, err
}

// Stat returns the metadata of the named file. It does not follow a link.
func (d *Dir) Stat(name string) (st Stat, err error) {
	if err := checkElement(name); err != nil {
		return st, err
	}
	_, err = d.syscallAt(sysFstatat, name, uintptr(unsafe.Pointer(&st.Stat_t)), atSymlinkNoFollow, 0)
	return st, err
}

// syscallAt makes a system call on a name in the directory.
//
//go:uintptrescapes
func (d *Dir) syscallAt(trap uintptr, name string, a3, a4, a5 uintptr) (int, error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	for {
		n, _, errno := syscall.Syscall6(trap, uintptr(d.fd), uintptr(unsafe.Pointer(p)), a3, a4, a5, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			continue
		}
		return -1, errno
	}
}

// Names returns the next names in the directory: all names if n is negative,
// and otherwise about n names, with io.EOF at the end.
func (d *Dir) Names(n int) (names []string, err error) {
	for n < 0 || len(names) < n {
		if len(d.entries) == 0 {
			if d.raw == nil {
				d.raw = make([]byte, 16<<10)
			}
			got, err := retry(func() (int, error) { return syscall.ReadDirent(d.fd, d.raw) })
			switch {
			case err != nil:
				return names, err
			case got <= 0 && n < 0:
				return names, nil
			case got <= 0:
				return names, io.EOF
			}
			d.entries = d.raw[:got]
		}
		var used int
		used, _, names = syscall.ParseDirent(d.entries, n-len(names), names)
		d.entries = d.entries[used:]
	}
	return names, nil
}

// Rewind restarts Names from the beginning.
func (d *Dir) Rewind() error {
	d.entries = nil
	_, err := syscall.Seek(d.fd, 0, io.SeekStart)
	return err
}

// Readlink returns the target of a link in the directory.
func (d *Dir) Readlink(name string) (string, error) {
	if err := checkElement(name); err != nil {
		return "", err
	}
	b := make([]byte, 4097)
	n, err := d.syscallAt(syscall.SYS_READLINKAT, name, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// Mkdir creates a directory.
func (d *Dir) Mkdir(name string, mode uint32) error {
	if err := checkElement(name); err != nil {
		return err
	}
	_, err := retry(func() (int, error) { return 0, syscall.Mkdirat(d.fd, name, mode) })
	return err
}

// Symlink creates a symbolic link to a target.
func (d *Dir) Symlink(target, name string) error {
	if err := checkElement(name); err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(target)
	if err != nil {
		return err
	}
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(to)), uintptr(d.fd), uintptr(unsafe.Pointer(p))); errno != 0 {
		return errno
	}
	return nil
}

// Rename moves a file from this directory to a name in another directory.
func (d *Dir) Rename(name string, to *Dir, as string) error {
	if err := errors.Join(checkElement(name), checkElement(as)); err != nil {
		return syscall.EINVAL
	}
	_, err := retry(func() (int, error) { return 0, syscall.Renameat(d.fd, name, to.fd, as) })
	return err
}

// Lchown changes the owner of the named file. It does not follow a link.
func (d *Dir) Lchown(name string, uid, gid int) error {
	if err := checkElement(name); err != nil {
		return err
	}
	return syscall.Fchownat(d.fd, name, uid, gid, atSymlinkNoFollow)
}

// Chmod changes the mode of the directory itself.
func (d *Dir) Chmod(mode uint32) error { return syscall.Fchmod(d.fd, mode) }

// Chown changes the owner of the directory itself.
func (d *Dir) Chown(uid, gid int) error { return syscall.Fchown(d.fd, uid, gid) }

// SetTime sets the modification time of the directory.
func (d *Dir) SetTime(t syscall.Timespec) error { return setTime(uintptr(d.fd), t) }

// SetTime sets the modification time of an open file.
func SetTime(f *os.File, t syscall.Timespec) error {
	_, err := control(f, func(fd uintptr) (int, error) { return 0, setTime(fd, t) })
	return err
}

func setTime(fd uintptr, t syscall.Timespec) error {
	times := [2]syscall.Timespec{t, t}
	if _, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, fd, 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Fchmod sets the mode of an open file, including its set-user-ID, set-group-ID
// and sticky bits in the kernel's encoding.
func Fchmod(f *os.File, mode uint32) error {
	_, err := control(f, func(fd uintptr) (int, error) { return 0, syscall.Fchmod(int(fd), mode) })
	return err
}

// Proc returns a /proc path of a name in the directory, or of the directory
// itself if the name is empty. It is for system calls that do not accept a
// descriptor. Only the last element of the path can be a link.
func (d *Dir) Proc(name string) string {
	p := "/proc/self/fd/" + strconv.Itoa(d.fd)
	if name != "" {
		p += "/" + name
	}
	return p
}

// Remove removes a file that is not a directory.
func (d *Dir) Remove(name string) error { return d.unlink(name, 0) }

func (d *Dir) unlink(name string, flags uintptr) error {
	if err := checkElement(name); err != nil {
		return err
	}
	_, err := d.syscallAt(syscall.SYS_UNLINKAT, name, flags, 0, 0)
	return err
}

// RemoveAll removes the named file or tree. A missing name is not an error.
// RemoveAll returns the first error and continues with the other entries.
func (d *Dir) RemoveAll(name string) error {
	err := d.unlink(name, 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	below, openErr := d.Dir(name)
	if openErr != nil {
		return err
	}
	defer func() { _ = below.Close() }() // it was opened only for reading
	// The loop is bounded, because a program that keeps creating files could otherwise make it
	// endless.
	for range 1000 {
		names, readErr := below.Names(10_000)
		var first error
		for _, n := range names {
			if e := below.RemoveAll(n); first == nil {
				first = e
			}
		}
		if first != nil {
			return first
		}
		if len(names) == 0 {
			if !errors.Is(readErr, io.EOF) {
				return readErr
			}
			if err := d.unlink(name, atRemoveDir); err != syscall.ENOTEMPTY {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}
		}
		if err := below.Rewind(); err != nil {
			return err
		}
	}
	return syscall.ENOTEMPTY
}
