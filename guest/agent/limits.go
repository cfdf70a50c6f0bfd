package agent

import (
	"os"
	"syscall"
)

// rlimitNproc is RLIMIT_NPROC, which package syscall does not name.
const rlimitNproc = 6

// setLimits sets the limits that the next child inherits, and returns what
// puts the agent's own back. It never fails: an agent that may not raise its
// limits again (no CAP_SYS_RESOURCE) still only has lower ones.
func setLimits(processes, openFiles uint64) (restore func()) {
	undo := func() {}
	for _, l := range []struct {
		resource int
		value    uint64
	}{{rlimitNproc, processes}, {syscall.RLIMIT_NOFILE, openFiles}} {
		var old syscall.Rlimit
		if l.value == 0 || syscall.Getrlimit(l.resource, &old) != nil {
			continue
		}
		if syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: l.value, Max: l.value}) != nil {
			continue
		}
		inner := undo
		undo = func() {
			syscall.Setrlimit(l.resource, &old)
			inner()
		}
	}
	return undo
}

// setPipeSize asks for a larger pipe; a smaller one only costs speed.
func setPipeSize(f *os.File) {
	const setpipesz = 1031 // F_SETPIPE_SZ
	if rc, err := f.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			syscall.Syscall(syscall.SYS_FCNTL, fd, setpipesz, pipeSize)
		})
	}
}
