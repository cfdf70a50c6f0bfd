package agent

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// firstTag is below the first supplementary group that marks a process tree.
// It is far above any group of a real system.
const firstTag = 1 << 30

// killTree kills everything that carries the tag. It stops processes before
// it kills them, so that the tree cannot grow faster than it is cut: a
// stopped process neither forks nor frees its place under RLIMIT_NPROC.
func killTree(tag uint32) {
	for range 200 {
		stopped := false
		for _, pid := range tagged(tag) {
			if !pid.stopped {
				syscall.Kill(pid.id, syscall.SIGSTOP)
				stopped = true
			}
		}
		if !stopped {
			break
		}
	}
	for range 200 {
		tree := tagged(tag)
		if len(tree) == 0 {
			return
		}
		for _, pid := range tree {
			syscall.Kill(pid.id, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

type pid struct {
	id      int
	stopped bool
}

// tagged lists the processes that live and carry the tag.
func tagged(tag uint32) []pid {
	want := []byte(strconv.FormatUint(uint64(tag), 10))
	var out []pid
	for _, id := range pids() {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/status")
		if err != nil {
			continue
		}
		state, groups := byte(0), []byte(nil)
		for line := range bytes.Lines(b) {
			if v, ok := bytes.CutPrefix(line, []byte("State:")); ok {
				if v = bytes.TrimSpace(v); len(v) > 0 {
					state = v[0]
				}
			}
			if v, ok := bytes.CutPrefix(line, []byte("Groups:")); ok {
				groups = v
			}
		}
		if state == 'Z' || state == 'X' {
			continue
		}
		for _, g := range bytes.Fields(groups) {
			if bytes.Equal(g, want) {
				out = append(out, pid{id: id, stopped: state == 'T'})
			}
		}
	}
	return out
}

// pids lists every process but init.
func pids() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var out []int
	for _, n := range names {
		if id, err := strconv.Atoi(n); err == nil && id > 1 {
			out = append(out, id)
		}
	}
	return out
}

// stop asks every process to end and returns when they have, or when the
// grace is over. Stopped processes are woken so that they can hear.
func stop(s wire.Stop) {
	deadline := time.Now().Add(time.Duration(s.GraceMS) * time.Millisecond)
	for _, id := range pids() {
		syscall.Kill(id, syscall.SIGTERM)
		syscall.Kill(id, syscall.SIGCONT)
	}
	for time.Now().Before(deadline) && len(pids()) > 0 {
		time.Sleep(5 * time.Millisecond)
	}
}
