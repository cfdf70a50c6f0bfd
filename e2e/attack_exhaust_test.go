package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// TestAttackProcesses verifies that a program that starts too many processes affects only itself:
// other commands work, the sentry keeps running, and the number of threads on the host stays far
// below the host's limit.
//
//suite:part hostile
func TestAttackProcesses(t *testing.T) {
	needRoot(t)
	attack.Case(t, "RES-02", "threads")
	attack.Case(t, "RES-01", "children and a fork bomb")
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "processes", func(s *brig.Spec) { s.Limits.Processes = 64 })
	sentry := m.sentry()
	if out := m.sh("user", probe+" processes"); out != "true EAGAIN\n" {
		t.Errorf("children: %q", out)
	}
	threads := `python3 -c "
import threading, time
n = 0
try:
    while n < 1000: threading.Thread(target=time.sleep, args=(1,), daemon=True).start(); n += 1
except RuntimeError as e: print(20 < n <= 64, n, e, flush=True)
"`
	if out := m.sh("user", threads); !strings.HasPrefix(out, "True ") {
		t.Errorf("threads: %q", out)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A fork bomb, whose forks fail repeatedly.
		_, _, _ = m.try(brig.Command{Shell: "b() { b | b & }; b; sleep 9", Timeout: 3 * time.Second})
	}()
	peak := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		peak = max(peak, m.threads())
	}
	if res, out, err := m.try(brig.Command{Shell: "echo alive", User: "root"}); err != nil || out != "alive\n" {
		t.Errorf("beside a fork bomb: %q, %+v, %v", out, res, err)
	}
	<-done
	if limit := 4*64 + 512; peak == 0 || peak > limit*3/4 {
		t.Errorf("the host saw %d threads, and would stop at %d", peak, limit)
	}
	if m.sentry() != sentry {
		t.Error("the sentry is another one")
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	m.checkNoTraces()
}

//suite:part hostile
func TestAttackOpenFiles(t *testing.T) {
	needRoot(t)
	attack.Case(t, "RES-06", "open files until the kernel refuses")
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "files", func(s *brig.Spec) { s.Limits.OpenFiles = 100 })
	if out := m.sh("user", probe+" files"); !strings.HasSuffix(out, " EMFILE\n") || len(out) > len("100 EMFILE\n") {
		t.Errorf("%q", out)
	}
	// Many concurrent processes with open files do not exhaust the agent's descriptors.
	if _, _, err := m.try(brig.Command{Shell: "for i in $(seq 30); do (exec 9<" + probe + "; sleep 1) & done; wait"}); err != nil {
		t.Error(err)
	}
	if out := m.sh("user", "echo alive"); out != "alive\n" {
		t.Errorf("afterwards: %q", out)
	}
}

// TestAttackDisk verifies that a sandbox can write only a limited amount of data, and that its
// disk space is freed when it ends.
//
//suite:part hostile
func TestAttackDisk(t *testing.T) {
	needRoot(t)
	attack.Case(t, "RES-04", "the disk, /tmp and /dev/shm until the kernel refuses")
	p, images := newProvider(t, t.TempDir())
	const disk, memory = 96 * brig.MiB, 512 * brig.MiB
	m := newMachine(t, p, images, "disk", func(s *brig.Spec) { s.Limits.Disk, s.Limits.Memory = disk, memory })
	for file, limit := range map[string]int64{
		"/home/user/fill": disk, "/tmp/fill": min(memory/2, disk), "/dev/shm/fill": 64 * brig.MiB,
	} {
		out := m.sh("user", probe+" fill "+file)
		var n int64
		var reason string
		if _, err := fmt.Sscan(out, &n, &reason); err != nil || reason != "ENOSPC" || n > limit || n < limit*9/10 {
			t.Errorf("%s took %q, want ENOSPC at about %d", file, out, limit)
		}
		if file != "/home/user/fill" {
			m.sh("user", "rm "+file)
		}
	}
	if used := measureDiskUse(t, m); used < disk*9/10 || used > disk*11/10 {
		t.Errorf("the sandbox holds %d bytes of the host's disk, its limit is %d", used, disk)
	}
	// A sandbox whose disk is full still works.
	if out := m.sh("user", "rm fill 2>/dev/null; echo alive; rm ~/fill; echo room > ~/room; cat ~/room"); out != "alive\nroom\n" {
		t.Errorf("when full: %q", out)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	m.checkNoTraces()
}

// measureDiskUse returns the number of bytes on the host's disk that back the writable layer. The layer's
// file is unlinked, so it is found through the sentry's descriptors.
func measureDiskUse(t *testing.T, m *machine) int64 {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.sentry()))
	if err != nil {
		t.Fatal(err)
	}
	var peak int64
	for _, fd := range fds {
		var st syscall.Stat_t
		if syscall.Stat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, m.dir+"/overlay/") {
				peak = max(peak, st.Blocks*512)
			}
		}
	}
	return peak
}

// TestAttackInodes verifies that the memory limit bounds the number of empty files, and that only
// a component inside the sandbox fails.
//
//suite:part hostile
func TestAttackInodes(t *testing.T) {
	needRoot(t)
	attack.Case(t, "RES-05", "300,000 empty files in two places")
	p, images := newProvider(t, t.TempDir())
	neighbour := newMachine(t, p, images, "beside", nil)
	for _, dir := range []string{"/home/user/many", "/tmp/many"} {
		m := newMachine(t, p, images, brig.ID("inodes-"+filepath.Base(filepath.Dir(dir))), func(s *brig.Spec) { s.Limits.Memory = 64 * brig.MiB })
		before := inodes(t, m)
		res, out, err := m.try(brig.Command{Argv: []string{probe, "inodes", dir, "300000"}})
		switch {
		case err != nil:
			t.Errorf("%s: %+v, %v: %s", dir, res, err, out)
		case res.OOMKilled:
			t.Logf("%s: ended for its memory", dir)
		default:
			t.Logf("%s: %s", dir, out)
		}
		if used := inodes(t, m) - before; used > 3_000 {
			t.Errorf("%s: the sandbox has %d more inodes of the host", dir, used)
		}
		if out := neighbour.sh("user", "echo fine"); out != "fine\n" {
			t.Errorf("the neighbour: %q", out)
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		m.checkNoTraces()
	}
}

// inodes counts the inodes on the host that a sandbox uses: the files in its provider's data
// folder, and open files of its processes, which may be unlinked.
func inodes(t *testing.T, m *machine) (n int) {
	t.Helper()
	err := filepath.WalkDir(m.p.DataDir, func(_ string, _ fs.DirEntry, err error) error {
		if n++; errors.Is(err, fs.ErrNotExist) {
			return nil // removed concurrently
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range m.pids() {
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // the process may have ended
		n += len(fds)
	}
	return n
}
