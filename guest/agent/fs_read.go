package agent

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// lister sends the entries below a directory, many in one write.
type lister struct {
	w        *writer
	accounts accounts
	left     int // entries that may still come
	batch    bytes.Buffer
}

// batched is how much is sent at once, in bytes.
const batched = 128 << 10

// list sends what is in a directory, and in those below it.
func list(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	if err := needDir(p.name); err != nil {
		return err
	}
	l := lister{w: c.w, left: c.Max}
	if err := l.walk(p.name, c.Depth); errors.Is(err, errTooMany) {
		return failure("excess", "path", "path '%s' has more than %d entries", p.name, c.Max)
	} else if err != nil {
		return pathError(p.name, err)
	}
	l.w.raw(l.batch.Bytes())
	return nil
}

// needDir fails unless there is a directory, or a link to one.
func needDir(name string) error {
	st, err := os.Stat(name)
	if err != nil {
		return pathError(name, err)
	}
	if !st.IsDir() {
		return badPath("path '%s' is not a directory", name)
	}
	return nil
}

var errTooMany = errors.New("too many entries")

// walk sends a directory's entries in order. What goes away meanwhile is not
// there.
func (l *lister) walk(dir string, depth int) error {
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(l.left + 1)
	f.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if l.left == 0 {
			return errTooMany
		}
		if l.w.gone() {
			return nil
		}
		e, err := l.accounts.entry(path.Join(dir, name))
		if err != nil {
			continue
		}
		l.left--
		if err := wire.WriteJSON(&l.batch, wire.TypeEntry, e); err != nil {
			return err
		}
		if l.batch.Len() >= batched {
			l.w.raw(l.batch.Bytes())
			l.batch.Reset()
		}
		if e.Type == "directory" && depth > 1 {
			if err := l.walk(e.Path, depth-1); errors.Is(err, errTooMany) {
				return err
			}
		}
	}
	return nil
}

// gone reports whether nobody listens any more.
func (w *writer) gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// read sends a file's entry and its content.
func read(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	f, st, err := openRegular(p.name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if c.Offset > 0 {
		if _, err := f.Seek(c.Offset, io.SeekStart); err != nil {
			return pathError(p.name, err)
		}
	}
	c.w.json(wire.TypeEntry, (&accounts{}).describe(p.name, st))
	// What a file has is read to its end, whatever its size says: those of
	// /proc say nothing.
	buf := make([]byte, wire.HeaderSize+256<<10)
	for left := c.Length; left != 0 && !c.w.gone(); {
		room := buf[wire.HeaderSize:]
		if left > 0 {
			room = room[:min(left, int64(len(room)))]
		}
		n, err := f.Read(room)
		if n > 0 {
			wire.PutHeader(buf, wire.TypeFileData, n)
			c.w.raw(buf[:wire.HeaderSize+n])
			left -= int64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pathError(p.name, err)
		}
	}
	return nil
}

// openRegular opens a regular file, and never waits for the other end of a
// pipe.
func openRegular(name string, flags int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	st, err := os.Stat(name)
	if err == nil {
		err = needRegular(name, st)
	}
	if err != nil && (flags&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, nil, pathError(name, err)
	}
	f, err := os.OpenFile(name, flags|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, nil, pathError(name, err)
	}
	if st, err = f.Stat(); err == nil {
		err = needRegular(name, st) // it may be another one by now
	}
	if err != nil {
		f.Close()
		return nil, nil, pathError(name, err)
	}
	return f, st, nil
}

func needRegular(name string, st fs.FileInfo) error {
	switch {
	case st.IsDir():
		return badPath("path '%s' is a directory", name)
	case !st.Mode().IsRegular():
		return badPath("path '%s' is not a regular file", name)
	}
	return nil
}
