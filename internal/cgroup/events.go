package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// WatchOOM calls f once when the kernel has killed a process of the group
// because of its memory limit. On v2 it is a no-op, because the kernel kills
// the whole group. The returned function stops the watch.
func (g *Group) WatchOOM(f func()) (stop func(), err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return func() {}, nil
	}
	dir := g.m.Path("memory")
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, fmt.Errorf("watch memory of %s: %w", g.path, err)
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch memory of %s: %w", g.path, err)
	}
	event := os.NewFile(uintptr(fd), "oom")
	line := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		event.Close()
		return nil, fmt.Errorf("watch memory of %s: %w", g.path, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [8]byte
		for {
			if _, err := event.Read(b[:]); err != nil {
				return
			}
			// The kernel sends the event before the kill, and also when the group
			// is removed.
			for range 500 {
				n, err := g.OOMKills()
				if n > 0 {
					f()
					return
				}
				if err != nil {
					break
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
	}()
	return func() { event.Close(); <-done }, nil
}
