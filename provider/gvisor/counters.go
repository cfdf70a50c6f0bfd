package gvisor

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// counters count the processes and connections that a sentry has refused to
// programs. They are in memory that the sentry shares with its shim. The sentry
// increments them without a system call. Its seccomp filter therefore needs no
// further exception, and refused calls cause no work on the host. The shim
// accepts any values, because the sentry is untrusted.
type counters struct{ processes, connections *atomic.Uint64 }

// countersFlag is the sentry's flag for the descriptor of its counters. The
// sentry removes this flag before gVisor parses the arguments.
const countersFlag = "brig-counters-fd"

// countersSize is the size of the counters' file, in bytes.
const countersSize = 4096

// newCounters creates counters and the file that is donated to the sentry. The
// file is sealed: if a sentry could shrink the file, the next read would crash
// the shim.
func newCounters() (*counters, *os.File, error) {
	fd, err := unix.MemfdCreate("brig-counters", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make counters: %w", err)
	}
	f := os.NewFile(uintptr(fd), "counters")
	err = f.Truncate(countersSize)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("make counters: %w", err)
	}
	c, err := mapCounters(fd, unix.PROT_READ)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return c, f, nil
}

// mapCounters maps counters for the lifetime of this process. Its children do
// not inherit the mapping.
func mapCounters(fd, access int) (*counters, error) {
	page, err := unix.Mmap(fd, 0, countersSize, access, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map counters: %w", err)
	}
	if err := unix.Madvise(page, unix.MADV_DONTFORK); err != nil {
		return nil, fmt.Errorf("map counters: %w", err)
	}
	n := (*[2]atomic.Uint64)(unsafe.Pointer(&page[0]))
	return &counters{&n[0], &n[1]}, nil
}

// read returns the current counts, or nil if c is nil.
func (c *counters) read() *brig.Refusals {
	if c == nil {
		return nil
	}
	n := func(v *atomic.Uint64) int64 { return int64(min(v.Load(), math.MaxInt64)) }
	return &brig.Refusals{Processes: n(c.processes), Connections: n(c.connections)}
}
