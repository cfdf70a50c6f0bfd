package gvisor

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setLimitsWithoutCgroup enforces limits without a cgroup. It limits CPUs by
// affinity, rounded up to whole CPUs. A watchdog measures the memory, and kills
// the sandbox when it exceeds its limit.
func (s *shim) setLimitsWithoutCgroup() ([]string, error) {
	notes := []string{"memory: enforced by measuring ten times a second, not by the kernel (no cgroup)"}
	n := int(math.Ceil(s.Limits.CPUs))
	if n < runtime.NumCPU() {
		if err := confine(n, s.ID); err != nil {
			return nil, err
		}
	}
	if float64(n) != s.Limits.CPUs {
		notes = append(notes, fmt.Sprintf("cpus: rounded up to %d whole processors (no cgroup)", n))
	}
	return notes, nil
}

// confine binds every thread of this process, and thereby all its children, to
// n of the available CPUs. It selects the CPUs by the sandbox's ID, to
// distribute the sandboxes.
func confine(n int, id string) error {
	var all, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("read affinity: %w", err)
	}
	var cpus []int
	for i := range 1024 {
		if all.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	first := 0
	for _, c := range id {
		first += int(c)
	}
	for i := range min(n, len(cpus)) {
		set.Set(cpus[(first+i)%len(cpus)])
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, &set)
		}
	}
	return nil
}

// watchdog kills the sandbox when its processes use more memory than allowed.
func (s *shim) watchdog() {
	// The guest's memory is in memory files (memfd). gVisor maps only the
	// pages that it currently uses. The sentry creates these files before it
	// runs the guest.
	files := memoryFiles(s.machine.pid())
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for {
		time.Sleep(100 * time.Millisecond)
		select {
		case <-s.machine.ended:
			return
		default:
		}
		if used := allocated(files) + memoryBelow(os.Getpid()); used > s.Limits.Memory {
			s.mu.Lock()
			s.memoryExceeded = true
			s.mu.Unlock()
			s.machine.kill(nil)
			return
		}
	}
}

// memoryFiles opens the memory files of a process.
func memoryFiles(pid int) (out []*os.File) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err != nil || !strings.HasPrefix(to, "/memfd:") {
			continue
		}
		if f, err := os.Open(l); err == nil {
			out = append(out, f)
		}
	}
	return out
}

// allocated returns the allocated size of files, in bytes.
func allocated(files []*os.File) (total int64) {
	for _, f := range files {
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil {
			total += st.Blocks * 512
		}
	}
	return total
}

// memoryBelow returns the memory of all descendants of a process, in bytes. It
// counts each shared page once, and does not count pages of files.
func memoryBelow(pid int) int64 {
	parents := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		id, _ := strconv.Atoi(filepath.Base(d))
		if of, err := parent(id); err == nil {
			parents[id] = of
		}
	}
	var total int64
	for id := range parents {
		for p := parents[id]; p > 1; p = parents[p] {
			if p == pid {
				total += readPSS(id)
				break
			}
		}
	}
	return total
}

// readPSS returns a process's proportional share of anonymous memory, in bytes.
func readPSS(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Pss_Anon:"); ok {
			f := strings.Fields(v)
			if len(f) > 0 {
				n, _ := strconv.ParseInt(f[0], 10, 64)
				return n << 10
			}
		}
	}
	return 0
}
