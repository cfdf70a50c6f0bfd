// Package journal stores the output of programs in two files of bounded size. For each file, an
// additional file records the times of the writes.
package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// oldSuffix is the suffix of the previous file.
const oldSuffix = ".1"

// Writer appends to a journal. It starts a new file when the current one is
// full, and keeps one old file.
type Writer struct {
	name string
	f    *os.File
	size int64
	marks
}

// maxSize is the maximum size of a file in bytes. The journal keeps two files.
const maxSize = 8 << 20

// Open opens the journal with this name for writing and creates it if it does
// not exist.
func Open(name string) (*Writer, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	w := &Writer{name: name, f: f, marks: openMarks(name)}
	if st, err := f.Stat(); err == nil {
		w.size = st.Size()
	}
	return w, nil
}

// Write implements io.Writer. Several writers may append to the same journal;
// each write remains contiguous.
func (w *Writer) Write(p []byte) (int, error) {
	if w.size > maxSize {
		w.rotate()
	}
	n, err := w.f.Write(p)
	w.size += int64(n)
	// The current offset is the end of our write, even if other writers append.
	if end, err := w.f.Seek(0, io.SeekCurrent); err == nil && n > 0 {
		w.recordWrite(end - int64(n))
	}
	return n, err
}

// Append appends p to the journal with this name. Other writers may have it open.
func Append(name string, p []byte) error {
	w, err := Open(name)
	if err != nil {
		return err
	}
	_, err = w.Write(p)
	return errors.Join(err, w.Close())
}

// rotate starts a new file, unless another writer has already started it. If that fails, the
// writer continues with the full file.
func (w *Writer) rotate() {
	// The lock is on the full file. A writer that waited for the lock then notices that the
	// file has been renamed.
	if err := syscall.Flock(int(w.f.Fd()), syscall.LOCK_EX); err != nil {
		return
	}
	next, err := w.next()
	if err != nil {
		_ = syscall.Flock(int(w.f.Fd()), syscall.LOCK_UN) // the lock is held
		return
	}
	_ = w.Close() // the content is already written
	*w = *next
}

// next returns a writer of the file after the full one.
func (w *Writer) next() (*Writer, error) {
	ours, err := w.f.Stat()
	if err != nil {
		return nil, err
	}
	now, err := os.Stat(w.name)
	if err != nil {
		return nil, err
	}
	if os.SameFile(ours, now) {
		_ = os.Rename(w.name+timesSuffix, w.name+oldSuffix+timesSuffix) // the file may not exist
		if err := os.Rename(w.name, w.name+oldSuffix); err != nil {
			return nil, err
		}
	}
	return Open(w.name)
}

// Close implements io.Closer.
func (w *Writer) Close() error {
	w.marks.closeFile()
	return w.f.Close()
}

// Read opens the journal with this name. The journal need not exist.
func Read(name string) (io.ReadCloser, error) {
	open, err := openFiles(name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{open.reader(), open}, nil
}

type files []*os.File

// openFiles opens the older and the newer file, if they exist.
func openFiles(name string) (open files, err error) {
	for _, n := range []string{name + oldSuffix, name} {
		f, err := os.Open(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open journal: %w", err), open.Close())
		}
		open = append(open, f)
	}
	return open, nil
}

func (f files) reader() io.Reader {
	var rs []io.Reader
	for _, x := range f {
		rs = append(rs, x)
	}
	return io.MultiReader(rs...)
}

// Close implements io.Closer.
func (f files) Close() error {
	var errs []error
	for _, x := range f {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
