package agent

import (
	"fmt"
	"os"
	"syscall"
)

// userID is the account that a sandbox's programs have unless they say root.
const userID = 1000

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

// emptyBoundingSet makes sure that no program which the agent starts can have
// a capability, not even as root.
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
		if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, capBSetDrop, c, 0); errno != 0 {
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
