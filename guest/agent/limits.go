package agent

import (
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
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

// forkLimited forks a child that gets its limits from here: an agent without
// privileges could not take back what it lowers of its own. What the child
// forks before it has them is not held to them.
func forkLimited(file string, argv []string, attr *syscall.ProcAttr, call wire.Exec) (int, error) {
	pid, err := syscall.ForkExec(file, argv, attr)
	if err != nil {
		return 0, err
	}
	for resource, value := range map[int]uint64{rlimitNproc: call.Processes, syscall.RLIMIT_NOFILE: call.OpenFiles} {
		if value > 0 {
			l := syscall.Rlimit{Cur: value, Max: value}
			syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), uintptr(resource), uintptr(unsafe.Pointer(&l)), 0, 0, 0)
		}
	}
	return pid, nil
}

// setPipeSize asks for a larger pipe; a smaller one only costs speed.
func setPipeSize(fd int) {
	const setpipesz = 1031 // F_SETPIPE_SZ
	syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setpipesz, pipeSize)
}
