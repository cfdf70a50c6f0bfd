//go:build bench

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// abuseWatch records the peaks of a server's resources during an attack.
type abuseWatch struct {
	lab *lab
	pid int

	rss, disk               int64 // in bytes: the peak RSS and the largest growth of the disk usage
	descriptors, goroutines int
	before                  int64

	end  func()
	done sync.WaitGroup
	err  error
}

// watchAbuse measures the server's resources until stop is called.
func (l *lab) watchAbuse(ctx context.Context, pid int) *abuseWatch {
	w := &abuseWatch{lab: l, pid: pid}
	ctx, w.end = context.WithCancel(ctx)
	w.before = w.diskUsage()
	// Reset VmHWM, so that it is the peak since the start of the attack.
	if w.err = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); w.err != nil {
		return w
	}
	w.done.Go(func() { w.forEach(ctx, 200*time.Millisecond, w.countDescriptors) })
	w.done.Go(func() { w.forEach(ctx, time.Second, func() { w.goroutines = max(w.goroutines, l.goroutines(ctx)) }) })
	w.done.Go(func() { w.forEach(ctx, 2*time.Second, func() { w.disk = max(w.disk, w.diskUsage()-w.before) }) })
	return w
}

// stop ends the measurement and reads the server's peak RSS.
func (w *abuseWatch) stop() error {
	w.end()
	w.done.Wait()
	w.disk = max(w.disk, w.diskUsage()-w.before)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		return fmt.Errorf("read the server's peak of memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			w.rss = kb << 10
		}
	}
	return w.err
}

func (w *abuseWatch) forEach(ctx context.Context, every time.Duration, look func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *abuseWatch) countDescriptors() {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid))
	if err == nil {
		w.descriptors = max(w.descriptors, len(list))
	}
}

// diskUsage returns the disk usage of the data folder in bytes. It includes
// unlinked files that sandbox processes have open, such as each sandbox's
// writable layer.
func (w *abuseWatch) diskUsage() int64 {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var sum int64
	add := func(st *syscall.Stat_t) {
		if i := (inode{st.Dev, st.Ino}); !seen[i] {
			seen[i] = true
			sum += st.Blocks * 512
		}
	}
	// Files that are deleted during the walk count as 0.
	_ = filepath.WalkDir(w.lab.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			if info, err := d.Info(); err == nil {
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					add(st)
				}
			}
		}
		return nil
	})
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, d := range dirs {
		// A process of a guest has no command line, and its descriptors are those of its sentry.
		// During guest-forks, there are thousands of such processes, and reading their descriptors
		// would use a third of the CPU.
		if cmdline, err := os.ReadFile(d + "/cmdline"); err != nil || len(cmdline) == 0 {
			continue
		}
		list, _ := filepath.Glob(d + "/fd/*") // the pattern is valid
		for _, fd := range list {
			name, err := os.Readlink(fd)
			if err != nil || !strings.HasPrefix(name, w.lab.dir) || !strings.HasSuffix(name, " (deleted)") {
				continue
			}
			var st syscall.Stat_t
			if syscall.Stat(fd, &st) == nil {
				add(&st)
			}
		}
	}
	return sum
}
