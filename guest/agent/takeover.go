package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/threads"
)

// userID is the account that a sandbox's programs have unless they say root.
const userID = 1000

// furnish makes the folders that every sandbox has.
func (a *Agent) furnish() error {
	for _, dir := range []string{"/workspace", "/home/user"} {
		if a.plain {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make %s: %w", dir, err)
			}
		} else if err := own(dir); err != nil {
			return err
		}
	}
	if a.plain {
		return nil
	}
	return share("/workspace")
}

// own makes sure that dir is there and belongs to the user. An image that was
// unpacked without privileges has lost its owners.
func own(dir string) error {
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

// share lets root's group write to dir: without capabilities root is bound by
// a file's mode like everybody else.
func share(dir string) error {
	if err := os.Lchown(dir, userID, 0); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	if err := os.Chmod(dir, 0o775); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// agentID is the agent's own user and group from the moment it runs. Nobody
// else is that user, so that without a capability not even root in the sandbox
// can signal or stop its init.
const agentID = wire.AgentID

// shed makes sure that no program which the agent starts can have a
// capability, not even as root. A provider that can starts the agent as its
// own user, with what it needs as ambient capabilities and nothing in the
// bounding set. Then there is one thing to do. A call on all threads is dear
// in a sandbox, since it interrupts each of them.
func shed(o Options) error {
	if !o.KeepCapabilities {
		if err := emptyBoundingSet(); err != nil {
			return err
		}
	}
	if !o.Plain && (os.Getuid() != agentID || os.Geteuid() != agentID) {
		return becomeNobodyElse()
	}
	const prCapAmbient, clearAll = 47, 4
	if _, _, errno := threads.Syscall(syscall.SYS_PRCTL, prCapAmbient, clearAll, 0); errno != 0 {
		return fmt.Errorf("clear ambient capabilities: %w", errno)
	}
	return nil
}

// becomeNobodyElse changes the agent's user and keeps its capabilities, which
// no program that it starts ever has (see shed).
func becomeNobodyElse() error {
	const prSetKeepCaps, capVersion3 = 8, 0x20080522
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
		// What is inheritable a root would have by its next exec.
		sets[i].effective, sets[i].inheritable = sets[i].permitted, 0
	}
	if _, _, errno := threads.Syscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return fmt.Errorf("take capabilities up again: %w", errno)
	}
	return nil
}

// emptyBoundingSet takes every capability out of the bounding set that is
// still there.
func emptyBoundingSet() error {
	for c := uintptr(0); ; c++ {
		has, known := inBoundingSet(c)
		if !known {
			return nil // beyond the last capability
		}
		if !has {
			continue
		}
		const capBSetDrop = 24 // PR_CAPBSET_DROP
		if _, _, errno := threads.Syscall(syscall.SYS_PRCTL, capBSetDrop, c, 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
}

// inBoundingSet reports whether a capability is in the set, and whether the
// kernel knows it.
func inBoundingSet(c uintptr) (has, known bool) {
	const capBSetRead = 23 // PR_CAPBSET_READ
	r, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, capBSetRead, c, 0)
	return r == 1, errno == 0
}

// forOthers reports whether a call is for another account than the one that
// there is on a plain machine.
func forOthers(c *wire.Call) bool {
	switch {
	case c.Exec != nil:
		return c.Exec.UID != userID
	case c.Put != nil:
		return c.Put.UID != userID
	case c.FS != nil:
		return c.FS.Path.UID != userID || c.FS.To != nil && c.FS.To.UID != userID
	case c.Tree != nil:
		return c.Op == wire.OpUnpack && (c.Tree.UID != userID || c.Tree.Sealed)
	}
	return false
}
