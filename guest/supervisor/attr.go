package supervisor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// isPrivileged reports whether this process can create namespaces, and processes
// of other accounts, without a user namespace.
func isPrivileged() bool {
	const needed = 1<<0 | 1<<1 | 1<<6 | 1<<7 | 1<<18 | 1<<21 // CHOWN, DAC_OVERRIDE, SETGID, SETUID, SYS_CHROOT, SYS_ADMIN
	b, err := os.ReadFile("/proc/self/status")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && caps&needed == needed
		}
	}
	return false
}

// userID is the user id of programs.
const userID = 1000

// namespaceAttr returns the attributes that create the namespaces of a machine. The machine ends
// when its agent detects that the supervisor's end of its socket is closed. In plain mode, the
// namespaces are in a user namespace that has only this process's account.
func namespaceAttr(plain bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
	}
	if plain {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = namespaceCaps()
	}
	return attr
}

// namespaceCaps returns all capabilities. They apply only to the machine's namespaces, and the
// agent's programs do not get them.
func namespaceCaps() (caps []uintptr) {
	for c := uintptr(0); c <= 40; c++ {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_CAPBSET_READ, c, 0); errno == 0 {
			caps = append(caps, c)
		}
	}
	return caps
}
