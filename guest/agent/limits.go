package agent

import (
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
)

// rlimitNproc is RLIMIT_NPROC, which package syscall does not define.
const rlimitNproc = 6

// setLimits sets the limits that the next child inherits, and returns a
// function that restores the agent's own limits. Errors are ignored: an agent
// that may not raise its limits again (no CAP_SYS_RESOURCE) keeps the lower
// limits.
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

// forkLimited forks a child and then sets the child's limits, because an
// unprivileged agent cannot raise its own limits again. The limits do not apply
// to processes that the child forks before they are set.
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

// setPipeSize requests a larger pipe. It ignores errors, because a smaller pipe
// is merely slower.
func setPipeSize(fd int) {
	const setpipesz = 1031 // F_SETPIPE_SZ
	syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setpipesz, pipeSize)
}
