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

// machine reads the files of this machine, or of the tree that a test puts in
// its place. Names are relative to its root, where absolute links lead too.
// What is read goes through root; to look at a name, which happens hundreds of
// times before a sandbox starts, one system call has to do.
type machine struct {
	dir  string
	root *os.Root
}

func openMachine(dir string) (*machine, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the machine's root: %w", err)
	}
	return &machine{dir: dir, root: root}, nil
}

func (m *machine) lstat(name string) (fs.FileInfo, error) { return os.Lstat(m.dir + "/" + name) }

func (m *machine) readlink(name string) (string, error) { return os.Readlink(m.dir + "/" + name) }

func (m *machine) close() { _ = m.root.Close() }

// errPrivate says that not everybody on this machine may read a file.
var errPrivate = errors.New("not everybody may read it")

// resolve follows every link of name and returns a name without any. It is an
// error when a directory on the way is closed to others: a file in there may
// look readable by everybody and is not.
func (m *machine) resolve(name string) (string, error) {
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

// read follows links and returns the content of a regular file that everybody
// may read and that is no larger than max.
func (m *machine) read(name string, max int64) ([]byte, error) {
	p, err := m.resolve(name)
	if err != nil {
		return nil, err
	}
	// Non-blocking, so that a fifo cannot hold us.
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

// list returns the entries of a directory in the order of their names, links
// to it followed; none if others may not list it.
func (m *machine) list(name string) []fs.DirEntry {
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

// exists reports whether name leads to something that others may reach.
func (m *machine) exists(name string) bool {
	_, err := m.resolve(name)
	return err == nil
}
