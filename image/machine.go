package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// hostFS reads the files of the host, or of the tree that a test substitutes.
// Names are relative to its root, and absolute links resolve below it too.
// Reads go through root. lstat and readlink use a single system call, because
// they run hundreds of times before a sandbox starts.
type hostFS struct {
	dir  string
	root *os.Root
}

func openHostFS(dir string) (*hostFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the machine's root: %w", err)
	}
	return &hostFS{dir: dir, root: root}, nil
}

func (m *hostFS) lstat(name string) (fs.FileInfo, error) { return os.Lstat(m.dir + "/" + name) }

func (m *hostFS) readlink(name string) (string, error) { return os.Readlink(m.dir + "/" + name) }

func (m *hostFS) close() { _ = m.root.Close() }

// errPrivate reports that a file of the host is not world-readable.
var errPrivate = errors.New("not everybody may read it")

// resolve follows every link of name and returns a name without links. It fails
// if a directory on the path is not accessible to others, because a file in
// such a directory may have world-readable permissions without being readable.
func (m *hostFS) resolve(name string) (string, error) {
	todo, done := strings.Split(name, "/"), "."
	for links := 0; len(todo) > 0; {
		c := todo[0]
		todo = todo[1:]
		switch c {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		p := path.Join(done, c)
		fi, err := m.lstat(p)
		if err != nil {
			return "", err
		}
		if fi.IsDir() && fi.Mode().Perm()&0o001 == 0 {
			return "", &fs.PathError{Op: "resolve", Path: p, Err: errPrivate}
		}
		if fi.Mode().Type() != fs.ModeSymlink {
			done = p
			continue
		}
		if links++; links > 40 {
			return "", &fs.PathError{Op: "resolve", Path: name, Err: syscall.ELOOP}
		}
		target, err := m.readlink(p)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "."
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// read follows links and returns the content of a regular file. The file must
// be world-readable and no larger than max.
func (m *hostFS) read(name string, max int64) ([]byte, error) {
	p, err := m.resolve(name)
	if err != nil {
		return nil, err
	}
	// Open without blocking, because the file may be a FIFO.
	f, err := m.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !fi.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: p, Err: errors.New("not a regular file")}
	case fi.Mode().Perm()&0o004 == 0:
		return nil, &fs.PathError{Op: "read", Path: p, Err: errPrivate}
	case fi.Size() > max:
		return nil, &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("larger than %d bytes", max)}
	}
	return io.ReadAll(io.LimitReader(f, max))
}

// list returns the sorted entries of a directory and follows links to it. It
// returns nil if others may not list the directory.
func (m *hostFS) list(name string) []fs.DirEntry {
	p, err := m.resolve(name)
	if err != nil {
		return nil
	}
	fi, err := m.lstat(p)
	if err != nil || fi.Mode().Perm()&0o004 == 0 {
		return nil
	}
	entries, err := os.ReadDir(m.dir + "/" + p)
	if err != nil {
		return nil
	}
	return entries
}

// exists reports whether name resolves to a file that others can reach.
func (m *hostFS) exists(name string) bool {
	_, err := m.resolve(name)
	return err == nil
}
