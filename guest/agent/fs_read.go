package agent

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// lister sends the entries below a directory in batches.
type lister struct {
	as        func(func() error) error
	w         *writer
	accounts  accounts
	remaining int // number of entries that may still be sent
	batch     bytes.Buffer
}

// batchSize is the size at which a batch is sent, in bytes.
const batchSize = 128 << 10

// listDir sends the entries of a directory and of its subdirectories, up to the
// depth in the call.
func listDir(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	l := lister{as: c.withRights, w: c.w, remaining: c.Max}
	err = l.walk(func() (*nofollow.Dir, error) { return openDir(p.name) }, p.name, c.Depth)
	if errors.Is(err, errTooMany) {
		return newFailure("excess", "path", "path '%s' has more than %d entries", p.name, c.Max)
	} else if err != nil {
		return pathError(p.name, err)
	}
	l.w.writeFrame(l.batch.Bytes())
	return nil
}

// openDir opens a directory by its path. It returns an error if the path does
// not refer to a directory.
func openDir(name string) (*nofollow.Dir, error) {
	if err := requireDir(name); err != nil {
		return nil, err
	}
	d, err := nofollow.Open(name)
	return d, pathError(name, err)
}

// requireDir returns an error unless the path is a directory or a link to a directory.
func requireDir(name string) error {
	st, err := os.Stat(name)
	if err != nil {
		return pathError(name, err)
	}
	if !st.IsDir() {
		return newPathError("path '%s' is not a directory", name)
	}
	return nil
}

var errTooMany = errors.New("too many entries")

// walk opens a directory with openRoot and sends its entries in order. It omits files that are
// removed during the walk. It never waits for the host while it has the account's permissions,
// because the number of threads with such permissions is limited.
func (l *lister) walk(openRoot func() (*nofollow.Dir, error), full string, depth int) error {
	var (
		dir   *nofollow.Dir
		names []string
	)
	err := l.as(func() (err error) {
		if dir, err = openRoot(); err != nil {
			return err
		}
		if names, err = dir.Names(l.remaining + 1); errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
	if dir != nil {
		defer dir.Close()
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	for some := range slices.Chunk(names, 512) {
		entries := make([]wire.Entry, len(some))
		err := l.as(func() error {
			for i, name := range some {
				if childPath := path.Join(full, name); len(childPath) < maxPath {
					entries[i], _ = l.accounts.statEntryIn(dir, name, childPath) // the path stays empty if the file was removed
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, e := range entries {
			if e.Path == "" {
				continue
			}
			if err := l.send(e); err != nil || l.w.isHostGone() {
				return err
			}
			if e.Type != "directory" || depth <= 1 {
				continue
			}
			below := l.walk(func() (*nofollow.Dir, error) { return dir.Dir(some[i]) }, e.Path, depth-1)
			if errors.Is(below, errTooMany) {
				return below
			}
		}
	}
	return nil
}

// maxPath is the kernel's maximum length of a path. It also limits the depth of
// a walk.
const maxPath = 4096

// send adds an entry to the batch.
func (l *lister) send(e wire.Entry) error {
	if l.remaining == 0 {
		return errTooMany
	}
	l.remaining--
	if err := wire.WriteJSON(&l.batch, wire.TypeEntry, e); err != nil {
		return err
	}
	if l.batch.Len() >= batchSize {
		l.w.writeFrame(l.batch.Bytes())
		l.batch.Reset()
	}
	return nil
}

// isHostGone reports whether the host has disconnected.
func (w *writer) isHostGone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// read sends the entry and the content of a file.
func read(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	var (
		f *os.File
		e wire.Entry
	)
	// Read the open file with the agent's permissions, because the read may
	// wait for the host.
	err = c.withRights(func() error {
		var st nofollow.Stat
		var err error
		if f, st, err = openRegular(p.name, os.O_RDONLY, 0); err != nil {
			return err
		}
		if isOfProcess(f) {
			f.Close()
			return newProcessFileError(p.name)
		}
		e = (&accounts{}).describeOpen(p.name, f, st)
		return nil
	})
	if err != nil {
		return err
	}
	defer f.Close()
	if c.Offset > 0 {
		if _, err := f.Seek(c.Offset, io.SeekStart); err != nil {
			return pathError(p.name, err)
		}
	}
	c.w.writeJSON(wire.TypeEntry, e)
	// Read up to the end regardless of the reported size, because files of
	// /proc report a size of 0.
	buf := make([]byte, wire.HeaderSize+256<<10)
	for remaining := c.Length; remaining != 0 && !c.w.isHostGone(); {
		room := buf[wire.HeaderSize:]
		if remaining > 0 {
			room = room[:min(remaining, int64(len(room)))]
		}
		n, err := f.Read(room)
		if n > 0 {
			wire.PutHeader(buf, wire.TypeFileData, n)
			c.w.writeFrame(buf[:wire.HeaderSize+n])
			remaining -= int64(n)
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

// isOfProcess reports whether an open file is in the directory of a process in /proc. Environments,
// memory and arguments contain secrets, and a caller with permission to read files may lack the
// permission to run programs. The kernel also allows the agent to read its own memory, which
// contains data of other callers. The check uses the path of the open file, so links cannot bypass
// it. Thread ids cannot bypass it either, although Linux also has directories for them.
func isOfProcess(f *os.File) bool {
	if !isOnKernelFS(f) {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	var at string
	if closed := conn.Control(func(fd uintptr) { at, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(fd))) }); closed != nil || err != nil {
		return true
	}
	at, ok := strings.CutPrefix(at, "/proc/")
	id, _, _ := strings.Cut(at, "/")
	_, err = strconv.ParseUint(id, 10, 64)
	return ok && err == nil
}

func newProcessFileError(name string) error {
	return newFailure("denied", "path", "path '%s' belongs to a process", name)
}

// openRegular opens a regular file. It never blocks on a named pipe.
func openRegular(name string, flags int, mode uint32) (f *os.File, st nofollow.Stat, err error) {
	if err = syscall.Stat(name, &st.Stat_t); err == nil {
		err = requireRegular(name, st)
	}
	if err != nil && (flags&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, st, pathError(name, err)
	}
	if f, err = nofollow.OpenFile(name, flags, mode); err != nil {
		return nil, st, pathError(name, err)
	}
	if st, err = statOpen(f); err == nil {
		err = requireRegular(name, st) // the path may refer to another file by now
	}
	if err != nil {
		f.Close()
		return nil, st, pathError(name, err)
	}
	return f, st, nil
}

// statOpen returns the status of an open file.
func statOpen(f *os.File) (st nofollow.Stat, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return st, err
	}
	if closed := conn.Control(func(fd uintptr) { err = syscall.Fstat(int(fd), &st.Stat_t) }); closed != nil {
		return st, closed
	}
	return st, err
}

func requireRegular(name string, st nofollow.Stat) error {
	switch {
	case st.IsDir():
		return newPathError("path '%s' is a directory", name)
	case !st.IsRegular():
		return newPathError("path '%s' is not a regular file", name)
	}
	return nil
}
