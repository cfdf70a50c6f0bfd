package keeper

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// privileged reports whether this process can make namespaces and accounts'
// processes without one of users.
func privileged() bool {
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

// userID is the account that programs have.
const userID = 1000

// placeAttr makes the namespaces of a machine, which ends when its agent is told
// that the keeper's end of its socket is closed. Without privileges there is one
// of users around them, in which the only account is this process's own.
func placeAttr(plain bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
	}
	if plain {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = placeCaps()
	}
	return attr
}

// placeCaps are all there are: over what is in the namespaces, and nothing
// else. The agent's programs have none of them.
func placeCaps() (caps []uintptr) {
	for c := uintptr(0); c <= 40; c++ {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_CAPBSET_READ, c, 0); errno == 0 {
			caps = append(caps, c)
		}
	}
	return caps
}
