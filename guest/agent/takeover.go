package agent

import (
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/threads"
)

// userID is the default user of a sandbox's programs. A call may select root
// instead.
const userID = 1000

// createDirs creates the directories that every sandbox has.
func (a *Agent) createDirs() error {
	for _, dir := range []string{"/workspace", "/home/user"} {
		if a.plain {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make %s: %w", dir, err)
			}
		} else if err := ensureOwned(dir); err != nil {
			return err
		}
	}
	if a.plain {
		return nil
	}
	linkPython()
	return makeGroupWritable("/workspace")
}

// pythonDirs are the directories in which an image may contain Python, in the
// order of PATH.
var pythonDirs = [...]string{"/usr/local/bin", "/usr/bin", "/bin"}

// linkPython makes sure that an image with python3 also has the command python.
// If the host's /usr serves as the image's /usr, the image cannot provide that
// command itself. A failure to create the link is ignored.
func linkPython() {
	exists := func(dir, name string) bool {
		_, err := os.Stat(path.Join(dir, name))
		return err == nil
	}
	to := ""
	if exists(wire.ProgramsDir, "python3") { // a program from the machine's configuration
		to = path.Join(wire.ProgramsDir, "python3")
	}
	for _, dir := range pythonDirs {
		if to == "" && exists(dir, "python") {
			return
		}
	}
	for _, dir := range pythonDirs {
		if to == "" && exists(dir, "python3") {
			to = path.Join(dir, "python3")
		}
	}
	if to == "" || makeDir(wire.ProgramsDir, 0, 0) != nil {
		return
	}
	link := path.Join(wire.ProgramsDir, "python")
	if os.Symlink(to, link) == nil {
		_ = os.Lchown(link, 0, 0)
	}
}

// ensureOwned makes sure that dir exists and belongs to the user. If an image
// was unpacked without privileges, its files have lost their owners.
func ensureOwned(dir string) error {
	if err := makeDir(dir, userID, userID); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && st.IsDir() && sys.Uid != userID {
		if err := os.Lchown(dir, userID, userID); err != nil {
			return fmt.Errorf("own %s: %w", dir, err)
		}
	}
	return nil
}

// makeGroupWritable allows root's group to write to dir. It is needed because
// root has no capabilities and is subject to file modes like any other user.
func makeGroupWritable(dir string) error {
	if err := os.Lchown(dir, userID, 0); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	if err := os.Chmod(dir, 0o775); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// agentID is the user id and group id of the running agent. No other process
// runs as that user. Root in the sandbox has no capabilities, so even root
// cannot signal or stop the agent.
const agentID = wire.AgentID

// dropCapabilities ensures that the agent's programs cannot have capabilities, not even as root. If
// possible, a provider starts the agent as the agent's own user, with the needed capabilities as
// ambient capabilities and an empty bounding set. Only one step then remains. This matters because
// a call on all threads interrupts each thread, which is expensive in a sandbox.
//
// In a build, the bounding set keeps wire.BuildRights. A program of root has the capabilities of the
// bounding set when it starts. It does not gain any compared with the agent, and therefore has them
// despite no_new_privs.
func dropCapabilities(o Options) error {
	if !o.KeepCapabilities {
		keep := uint64(0)
		if o.Build {
			keep = wire.BuildRights
		}
		if err := reduceBoundingSet(keep, threads.Syscall); err != nil {
			return err
		}
	}
	if !o.Plain && (os.Getuid() != agentID || os.Geteuid() != agentID) {
		return switchUser()
	}
	const prCapAmbient, clearAll = 47, 4
	if _, _, errno := threads.Syscall(syscall.SYS_PRCTL, prCapAmbient, clearAll, 0); errno != 0 {
		return fmt.Errorf("clear ambient capabilities: %w", errno)
	}
	return nil
}

// capVersion3 is the version of capget and capset.
const capVersion3 = 0x20080522

// switchUser changes the agent's user to agentID and keeps the agent's
// capabilities. Programs that the agent starts never have them (see
// dropCapabilities).
func switchUser() error {
	const prSetKeepCaps = 8
	if _, _, errno := threads.Syscall(syscall.SYS_PRCTL, prSetKeepCaps, 1, 0); errno != 0 {
		return fmt.Errorf("keep capabilities: %w", errno)
	}
	if err := errors.Join(syscall.Setresgid(agentID, agentID, agentID), syscall.Setresuid(agentID, agentID, agentID)); err != nil {
		return fmt.Errorf("change user: %w", err)
	}
	header := struct{ version, pid uint32 }{version: capVersion3}
	var sets [2]struct{ effective, permitted, inheritable uint32 }
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return fmt.Errorf("read capabilities: %w", errno)
	}
	for i := range sets {
		// The inheritable set is cleared, because programs of root would gain its
		// capabilities at their next exec.
		sets[i].effective, sets[i].inheritable = sets[i].permitted, 0
	}
	if _, _, errno := threads.Syscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return fmt.Errorf("take capabilities up again: %w", errno)
	}
	return nil
}

// prctl calls the system call of that name, on one thread or on all.
type prctl func(trap, option, arg2, arg3 uintptr) (r1, r2 uintptr, errno syscall.Errno)

// reduceBoundingSet drops every capability from the bounding set that is not in keep.
func reduceBoundingSet(keep uint64, call prctl) error {
	for c := uintptr(0); ; c++ {
		has, known := isInBoundingSet(c)
		if !known {
			return nil // beyond the last capability
		}
		if !has || keep>>c&1 == 1 {
			continue
		}
		const capBSetDrop = 24 // PR_CAPBSET_DROP
		if _, _, errno := call(syscall.SYS_PRCTL, capBSetDrop, c, 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
}

// isInBoundingSet reports whether a capability is in the bounding set, and whether the kernel
// supports it.
func isInBoundingSet(c uintptr) (has, known bool) {
	const capBSetRead = 23 // PR_CAPBSET_READ
	r, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, capBSetRead, c, 0)
	return r == 1, errno == 0
}

// isForOtherUser reports whether a call is for an account other than the only
// one of a plain agent.
func isForOtherUser(c *wire.Call) bool {
	switch {
	case c.Exec != nil:
		return c.Exec.UID != userID || c.Exec.GID != userID
	case c.Put != nil:
		return c.Put.UID != userID
	case c.FS != nil:
		return c.FS.Path.UID != userID || c.FS.To != nil && c.FS.To.UID != userID
	case c.Tree != nil:
		return c.Op == wire.OpUnpack && (c.Tree.UID != userID || c.Tree.Sealed)
	}
	return false
}
