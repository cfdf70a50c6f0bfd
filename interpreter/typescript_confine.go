package interpreter

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits of a compiler's process: what others wrote is all that it reads.
const (
	transpileMemory = 1 << 30 // bytes
	nobody          = 65534
)

// confined starts a process that has nothing: nobody's user where we may give
// it away, no network, nothing that it could write. The end of its input,
// which comes with our own, is its end.
func confined() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{}}
		attr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	}
	return attr
}

// Confine takes from this process what it could use up, for good. It is called
// before TypeScriptMain.
func Confine() error {
	for resource, n := range map[int]uint64{
		unix.RLIMIT_DATA: transpileMemory, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}
