package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// The bounds of one watch. The kernel of a sandbox keeps events without end,
// so they are taken from it at once and counted.
const (
	maxWatched = 65536 // directories
	maxPending = 16384 // events that the host has not taken
)

// watched are the events that are asked for.
const watched = syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM |
	syscall.IN_ATTRIB | syscall.IN_MODIFY | syscall.IN_DELETE | syscall.IN_ONLYDIR

// watcher watches a directory, and those below it if it is recursive.
type watcher struct {
	root      string
	recursive bool
	file      *os.File // of inotify
	dirs      map[int32]*watchedDir
	accounts  accounts
	w         *writer
	making    *sync.RWMutex // the agent's
}

// watchedDir is a directory that has a watch.
type watchedDir struct {
	name string // relative to the root, "" for the root
	// found has what was there when the directory was looked at first, and is
	// told of. It may be new since the watch began; then an event tells of it
	// once more.
	found map[string]bool
}

// event is one event of inotify.
type event struct {
	wd   int32
	mask uint32
	name string
}

// watch tells of changes until the connection ends.
func watch(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	if err := needDir(p.name); err != nil {
		return err
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return pathError(p.name, err)
	}
	t := &watcher{root: p.name, recursive: c.Recursive, file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]*watchedDir{}, w: c.w, making: c.making}
	defer t.file.Close()
	if err := t.add("", false); err != nil {
		return pathError(p.name, err)
	}
	c.w.json(wire.TypeChange, wire.Change{})
	go func() {
		_, _ = c.r.Read() // the host says nothing more: this is the end
		t.file.Close()
	}()
	events := make(chan event, maxPending)
	ended := make(chan error, 1)
	go func() { ended <- t.pump(events) }()
	for e := range events {
		if err := t.handle(e); err != nil {
			return pathError(p.name, err)
		}
	}
	return pathError(p.name, <-ended)
}

// pump reads events until the file is closed or there are too many.
func (t *watcher) pump(events chan<- event) error {
	defer close(events)
	for buf := make([]byte, 64<<10); ; {
		n, err := t.file.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			size := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if size > len(b) {
				break
			}
			name, _, _ := bytes.Cut(b[syscall.SizeofInotifyEvent:size], []byte{0})
			e := event{int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), string(name)}
			b = b[size:]
			if e.mask&syscall.IN_Q_OVERFLOW != 0 || len(events) == cap(events) {
				return failure("excess", "path", "path '%s': there are too many changes to follow", t.root)
			}
			events <- e
		}
	}
}

// handle tells the host of one event.
func (t *watcher) handle(e event) error {
	d := t.dirs[e.wd]
	if d == nil {
		return nil
	}
	if e.mask&syscall.IN_IGNORED != 0 {
		delete(t.dirs, e.wd)
		return nil
	}
	if e.name == "" {
		return nil // of the directory itself: the one above it tells
	}
	name := path.Join(d.name, e.name)
	appeared := e.mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0
	told := d.found[e.name]
	if e.mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO|syscall.IN_DELETE|syscall.IN_MOVED_FROM) != 0 {
		delete(d.found, e.name)
	}
	if appeared && told {
		return nil
	}
	t.tell(name, kinds(e.mask)...)
	if !t.recursive || e.mask&syscall.IN_ISDIR == 0 {
		return nil
	}
	if e.mask&syscall.IN_MOVED_FROM != 0 {
		t.forget(name)
	}
	if appeared {
		return t.add(name, true)
	}
	return nil
}

// kinds says what an event means.
func kinds(mask uint32) (out []string) {
	for _, k := range []struct {
		bits uint32
		kind string
	}{
		{syscall.IN_CREATE | syscall.IN_MOVED_TO, "create"}, {syscall.IN_MOVED_FROM, "rename"},
		{syscall.IN_ATTRIB, "chmod"}, {syscall.IN_MODIFY, "write"}, {syscall.IN_DELETE, "remove"},
	} {
		if mask&k.bits != 0 {
			out = append(out, k.kind)
		}
	}
	return out
}

// tell tells of a change, with what is there now.
func (t *watcher) tell(name string, kinds ...string) {
	if len(kinds) == 0 || t.w.gone() {
		return
	}
	change := wire.Change{Name: name, Kinds: kinds}
	t.making.RLock()
	e, err := t.accounts.entry(path.Join(t.root, name))
	t.making.RUnlock()
	if err == nil {
		change.Entry = &e
	}
	t.w.json(wire.TypeChange, change)
}

// add watches a directory and, if the watch is recursive, those in it. What is
// there already is told as new if it appeared with the directory. Only the
// root's own failure is one: the others may have gone again.
func (t *watcher) add(name string, appeared bool) error {
	if len(t.dirs) == maxWatched {
		return failure("excess", "path", "path '%s' has more than %d directories", t.root, maxWatched)
	}
	mask, full := uint32(watched), path.Join(t.root, name)
	if name != "" {
		mask |= syscall.IN_DONT_FOLLOW
	}
	wd, err := t.control(func(fd int) (int, error) { return syscall.InotifyAddWatch(fd, full, mask) })
	if err != nil {
		if name == "" {
			return err
		}
		return nil
	}
	d := &watchedDir{name: name, found: map[string]bool{}}
	t.dirs[int32(wd)] = d
	if !t.recursive {
		return nil
	}
	entries, _ := os.ReadDir(full)
	for _, e := range entries {
		below := path.Join(name, e.Name())
		if appeared {
			d.found[e.Name()] = true
			t.tell(below, "create")
		}
		if e.IsDir() {
			if err := t.add(below, appeared); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget ends the watches of a directory that was moved away, and of those
// below.
func (t *watcher) forget(name string) {
	for wd, d := range t.dirs {
		if d.name == name || strings.HasPrefix(d.name, name+"/") {
			delete(t.dirs, wd)
			_, _ = t.control(func(fd int) (int, error) { return syscall.InotifyRmWatch(fd, uint32(wd)) })
		}
	}
}

// control calls inotify, unless it is closed.
func (t *watcher) control(f func(fd int) (int, error)) (n int, err error) {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if closed := conn.Control(func(fd uintptr) { n, err = f(int(fd)) }); closed != nil {
		return 0, closed
	}
	return n, err
}
