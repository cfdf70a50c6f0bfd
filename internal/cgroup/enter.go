package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/opencontainers/cgroups"

	"github.com/brig-run/brig/internal/threads"
)

// Enter moves this process into the group, thread by thread, until the caller
// calls leave. Until then, new child processes start in the group. Moving a
// whole process would take 10 ms in each direction, because the kernel waits
// until every processor has passed a quiescent state. A thread that moves
// itself does not wait.
//
// Enter returns errors.ErrUnsupported and has no effect on cgroup v2, which can start a process
// directly in a group, and if the original group is not visible.
func (g *Group) Enter() (leave func() error, err error) { return g.enter((*taskFiles).moveThreads) }

// EnterThread is like Enter, but only for the calling thread. The goroutine
// must be locked to the thread.
func (g *Group) EnterThread() (leave func() error, err error) { return g.enter((*taskFiles).passOne) }

func (g *Group) enter(pass func(*taskFiles) error) (leave func() error, err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return nil, errors.ErrUnsupported
	}
	var in, out taskFiles
	defer func() {
		in.close()
		if err != nil {
			out.close()
		}
	}()
	home, err := cgroups.ParseCgroupFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find own cgroup: %w", err)
	}
	seen := map[string]bool{}
	for name, dir := range g.m.GetPaths() {
		if seen[dir] {
			continue // two controllers in one hierarchy
		}
		seen[dir] = true
		mount, ok := strings.CutSuffix(dir, filepath.Clean(g.path))
		oldGroup, known := home[name]
		if !ok || !known {
			return nil, errors.ErrUnsupported
		}
		if in.open(dir) != nil || out.open(filepath.Join(mount, oldGroup)) != nil {
			return nil, errors.ErrUnsupported
		}
	}
	if err := pass(&in); err != nil {
		if errors.Is(err, syscall.ENOTSUP) { // a build with cgo
			return nil, errors.ErrUnsupported
		}
		return nil, errors.Join(fmt.Errorf("enter cgroup %s: %w", g.path, err), pass(&out))
	}
	return func() error {
		defer out.close()
		if err := pass(&out); err != nil {
			return fmt.Errorf("leave cgroup %s: %w", g.path, err)
		}
		return nil
	}, nil
}

// taskFiles are the "tasks" files through which a thread enters a group, one for
// each hierarchy.
type taskFiles []*os.File

func (d *taskFiles) open(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
	if err == nil {
		*d = append(*d, f)
	}
	return err
}

// moveThreads moves every thread of this process. A thread that is created
// concurrently starts in its creator's group and is then moved with the others.
func (d *taskFiles) moveThreads() error {
	self := []byte{'0'} // "0" means the writing thread
	defer runtime.KeepAlive(self)
	for _, f := range *d {
		_, _, errno := threads.Syscall(syscall.SYS_WRITE, f.Fd(), uintptr(unsafe.Pointer(&self[0])), 1)
		if errno != 0 {
			return errno
		}
	}
	return nil
}

// passOne moves the calling thread.
func (d *taskFiles) passOne() error {
	for _, f := range *d {
		if _, err := f.WriteString("0"); err != nil {
			return err
		}
	}
	return nil
}

func (d *taskFiles) close() {
	for _, f := range *d {
		f.Close()
	}
}

// Contains reports whether a process is in the group, in every hierarchy.
func (g *Group) Contains(pid int) (bool, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false, fmt.Errorf("find cgroup of process %d: %w", pid, err)
	}
	found := 0
	paths := g.m.GetPaths()
	for line := range bytes.Lines(b) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) < 3 || !strings.HasSuffix(fields[2], g.path) {
			continue
		}
		for _, name := range strings.Split(fields[1], ",") {
			if _, ok := paths[name]; ok {
				found++
			}
		}
	}
	return found == len(paths), nil
}
