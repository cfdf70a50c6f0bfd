package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// Limits of one watch. A sandbox's kernel queues any number of events, so the agent reads them
// immediately and counts them.
const (
	maxWatched = 65536 // directories
	maxPending = 16384 // events that were not sent to the host yet
)

// Limits of all watches together. Watches use the sandbox's memory, which its
// programs also need.
const (
	maxAllWatched = 65536 // directories
	maxAllPending = 65536 // events that were not sent to the host yet
)

// watchUsage counts the directories and pending events of all watches.
var watchUsage struct{ dirs, pending atomic.Int64 }

// queue contains the events that have not been sent to the host yet. They are counted in
// watchUsage.
type queue struct {
	mu       sync.Mutex // guards the fields below
	notEmpty *sync.Cond
	events   []event
	closed   bool
	err      error // why the watch ended
}

func newQueue() *queue {
	q := &queue{}
	q.notEmpty = sync.NewCond(&q.mu)
	return q
}

// put adds an event, or returns false if there are too many.
func (q *queue) put(e event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.events) == maxPending || watchUsage.pending.Load() >= maxAllPending {
		return false
	}
	watchUsage.pending.Add(1)
	q.events = append(q.events, e)
	q.notEmpty.Signal()
	return true
}

// take waits for events and returns all of them. It returns no events once the
// queue is closed and empty.
func (q *queue) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.events) == 0 && !q.closed {
		q.notEmpty.Wait()
	}
	out := q.events
	q.events = nil
	watchUsage.pending.Add(-int64(len(out)))
	return out
}

// drop closes the queue and discards the remaining events.
func (q *queue) drop() {
	q.close(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	watchUsage.pending.Add(-int64(len(q.events)))
	q.events = nil
}

// close closes the queue. Its first call also records why the watch ends. take still returns the
// remaining events.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed, q.err = true, err
	}
	q.notEmpty.Signal()
}

// closeReason returns the reason that was given to close.
func (q *queue) closeReason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// watchMask is the inotify mask of a watched directory. rootMask adds the
// events of the root itself: for any other directory, the watch of its parent
// reports them.
const (
	watchMask = syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM |
		syscall.IN_ATTRIB | syscall.IN_MODIFY | syscall.IN_DELETE | syscall.IN_ONLYDIR
	rootMask = watchMask | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
)

// watcher watches a directory and, if it is recursive, its subdirectories.
type watcher struct {
	root      string
	dir       *nofollow.Dir // the open root
	as        func(func() error) error
	recursive bool
	file      *os.File // the inotify descriptor
	dirs      map[int32]*watchedDir
	denied    map[string]bool // the directories that the user may not read
	accounts  accounts
	w         *writer
	createMu  *sync.RWMutex // the agent's lock
}

// watchedDir is a directory that has a watch.
type watchedDir struct {
	name string // relative to the root, "" for the root
	// found contains the files that add reported when it read the directory. If
	// one of them was created after the watch had started, its create event is
	// suppressed.
	found map[string]bool
}

// event is one inotify event.
type event struct {
	wd   int32
	mask uint32
	name string
}

// watch reports changes until the connection closes or the path leads to another
// directory.
func watch(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return pathError(p.name, err)
	}
	t := &watcher{root: p.name, recursive: c.Recursive, file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]*watchedDir{}, denied: map[string]bool{}, as: c.withRights, w: c.w, createMu: c.createMu}
	defer t.file.Close()
	err = c.withRights(func() (err error) {
		t.dir, err = openDir(p.name)
		return err
	})
	if err != nil {
		return pathError(p.name, err)
	}
	defer t.dir.Close()
	defer func() { watchUsage.dirs.Add(-int64(len(t.dirs))) }()
	if err := t.add("", false); err != nil {
		return pathError(p.name, err)
	}
	c.w.writeJSON(wire.TypeChange, wire.Change{})
	go func() {
		_, _ = c.r.Read() // the host sends no more frames, so this read waits for the end
		t.file.Close()
	}()
	events, ended := newQueue(), make(chan struct{})
	var guard sync.WaitGroup
	defer guard.Wait()
	defer close(ended)
	guard.Go(func() { t.guardRoot(events, ended) })
	go func() { events.close(t.pump(events)) }()
	defer events.drop()
	for list := events.take(); len(list) > 0; list = events.take() {
		for _, e := range list {
			if err := t.handle(e); err != nil {
				return pathError(p.name, err)
			}
		}
	}
	return pathError(p.name, events.closeReason())
}

// pump reads events until the file is closed or too many events are pending.
func (t *watcher) pump(events *queue) error {
	for buf := make([]byte, 8<<10); ; {
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
			if e.mask&syscall.IN_Q_OVERFLOW != 0 || !events.put(e) {
				return newFailure("excess", "path", "path '%s': there are too many changes to follow", t.root)
			}
		}
	}
}

// handle reports one event to the host.
func (t *watcher) handle(e event) error {
	d := t.dirs[e.wd]
	if d == nil {
		return nil
	}
	if err := t.checkEvent(d, e.mask); err != nil {
		return err
	}
	if e.mask&syscall.IN_IGNORED != 0 {
		delete(t.dirs, e.wd)
		watchUsage.dirs.Add(-1)
		return nil
	}
	if e.name == "" {
		return nil // an event of the directory itself, which its parent also reports
	}
	name := path.Join(d.name, e.name)
	appeared := e.mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0
	reported := d.found[e.name]
	if e.mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO|syscall.IN_DELETE|syscall.IN_MOVED_FROM) != 0 {
		delete(d.found, e.name)
	}
	if appeared && reported {
		return nil
	}
	t.reportChange(name, changeKinds(e.mask)...)
	if !t.recursive || e.mask&syscall.IN_ISDIR == 0 {
		return nil
	}
	if e.mask&syscall.IN_MOVED_FROM != 0 {
		t.forget(name)
	}
	if e.mask&syscall.IN_DELETE != 0 {
		delete(t.denied, name)
	}
	if appeared || e.mask&syscall.IN_ATTRIB != 0 && t.denied[name] {
		return t.add(name, true)
	}
	return nil
}

// changeKinds returns the kinds of change in an event mask.
func changeKinds(mask uint32) (out []string) {
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

// reportChange reports a change with the current entry of the file.
func (t *watcher) reportChange(name string, kinds ...string) {
	if len(kinds) == 0 || t.w.isHostGone() {
		return
	}
	change := wire.Change{Name: name, Kinds: kinds}
	_ = t.as(func() error {
		t.createMu.RLock()
		defer t.createMu.RUnlock()
		dir, err := t.dir.Walk(path.Dir(name))
		if err != nil {
			return err
		}
		defer dir.Close()
		if e, err := t.accounts.statEntryIn(dir, path.Base(name), path.Join(t.root, name)); err == nil {
			change.Entry = &e
		}
		return nil
	})
	t.w.writeJSON(wire.TypeChange, change)
}

// add watches a directory and, if the watch is recursive, its subdirectories. If the directory
// appeared during the watch, add reports its files as new. Below the root, add skips directories
// that have been removed or replaced, or that the user may not read.
func (t *watcher) add(name string, appeared bool) error {
	delete(t.denied, name)
	if len(t.dirs)+len(t.denied) >= maxWatched {
		return newFailure("excess", "path", "path '%s' has more than %d directories", t.root, maxWatched)
	}
	if watchUsage.dirs.Load() >= maxAllWatched {
		return newFailure("excess", "path", "the watches of this sandbox have %d directories already", maxAllWatched)
	}
	mask := uint32(watchMask)
	if name == "" {
		mask = rootMask
	}
	d := &watchedDir{name: name, found: map[string]bool{}}
	var names []string
	isDir := map[string]bool{} // by name
	err := t.as(func() error {
		dir, err := t.dir.Walk(name)
		if err != nil {
			return err
		}
		defer dir.Close()
		// Use the descriptor, because the name may now refer to a link.
		wd, err := t.withDescriptor(func(fd int) (int, error) { return syscall.InotifyAddWatch(fd, dir.Proc(""), mask) })
		if errors.Is(err, syscall.ENOSPC) {
			return newFailure("excess", "path", "path '%s': the system has no more watches for directories", t.root)
		}
		if err != nil {
			return err
		}
		if t.dirs[int32(wd)] == nil {
			watchUsage.dirs.Add(1)
		}
		t.dirs[int32(wd)] = d
		if !t.recursive {
			return nil
		}
		if names, err = dir.Names(-1); err != nil {
			return err
		}
		for _, n := range names {
			if st, err := dir.Stat(n); err == nil && st.IsDir() {
				isDir[n] = true
			}
		}
		return nil
	})
	switch errno, _ := errors.AsType[syscall.Errno](err); {
	case err == nil:
	case name == "":
		return err
	case errno == syscall.ENOENT || errno == syscall.ENOTDIR || errno == syscall.ELOOP:
		return nil // its parent reports the change
	case errno == syscall.EACCES || errno == syscall.EPERM:
		t.denied[name] = true
		return nil
	default:
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if appeared {
			d.found[n] = true
			t.reportChange(path.Join(name, n), "create")
		}
		if isDir[n] {
			if err := t.add(path.Join(name, n), appeared); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget removes the watches of a directory that was moved away, and of its
// subdirectories.
func (t *watcher) forget(name string) {
	maps.DeleteFunc(t.denied, func(d string, _ bool) bool { return d == name || strings.HasPrefix(d, name+"/") })
	for wd, d := range t.dirs {
		if d.name == name || strings.HasPrefix(d.name, name+"/") {
			delete(t.dirs, wd)
			watchUsage.dirs.Add(-1)
			_, _ = t.withDescriptor(func(fd int) (int, error) { return syscall.InotifyRmWatch(fd, uint32(wd)) })
		}
	}
}

// withDescriptor calls f with the inotify descriptor, unless it is closed.
func (t *watcher) withDescriptor(f func(fd int) (int, error)) (n int, err error) {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if closed := conn.Control(func(fd uintptr) { n, err = f(int(fd)) }); closed != nil {
		return 0, closed
	}
	return n, err
}
