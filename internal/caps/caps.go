// Package caps reduces the capability bounding set of a process that later
// drops its remaining privileges. Dropping a capability requires a system call
// that stops every thread, so the process drops them early, while it has few
// threads.
package caps

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/threads"
)

// Set is a set of capabilities, one bit per capability.
type Set uint64

// Of returns the set of the capabilities with these numbers.
func Of(caps ...int) (s Set) {
	for _, c := range caps {
		s |= 1 << c
	}
	return s
}

// Bounding returns the bounding set of the calling thread.
func Bounding() (s Set) {
	for c := range 64 {
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // beyond the last capability
		}
		s |= Set(in) << c
	}
	return s
}

// Settle sets the bounding set of all threads to keep, and then drops the capability to change
// it (CAP_SETPCAP). Code that later reduces the set then has no capability to drop. Child
// processes still inherit the capabilities until this process drops them.
func Settle(keep Set) error {
	have := Bounding()
	if keep&^have != 0 {
		return errors.New("the bounding set lacks what it is to keep")
	}
	t, err := load()
	if err != nil {
		return err
	}
	// Only capabilities in the bounding set can become inheritable.
	t.inheritable = t.permitted
	if err := t.apply(); err != nil {
		return err
	}
	for c := range missingFrom(have &^ keep) {
		if _, _, errno := threads.Syscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	t.effective &^= 1 << unix.CAP_SETPCAP
	return t.apply()
}

// missingFrom yields the capabilities in s.
func missingFrom(s Set) func(func(int) bool) {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros64(uint64(s))) {
				return
			}
		}
	}
}

// sets holds the capability sets of a thread.
type sets struct{ effective, permitted, inheritable Set }

// load reads the sets of the calling thread.
func load() (sets, error) {
	header, data := sets{}.encode()
	if err := unix.Capget(header, &data[0]); err != nil {
		return sets{}, fmt.Errorf("read capabilities: %w", err)
	}
	join := func(low, high uint32) Set { return Set(high)<<32 | Set(low) }
	return sets{
		effective:   join(data[0].Effective, data[1].Effective),
		permitted:   join(data[0].Permitted, data[1].Permitted),
		inheritable: join(data[0].Inheritable, data[1].Inheritable),
	}, nil
}

// apply sets the capabilities of all threads.
func (s sets) apply() error {
	header, data := s.encode()
	if _, _, errno := threads.Syscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("set capabilities: %w", errno)
	}
	return nil
}

func (s sets) encode() (*unix.CapUserHeader, *[2]unix.CapUserData) {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &[2]unix.CapUserData{
		{Effective: uint32(s.effective), Permitted: uint32(s.permitted), Inheritable: uint32(s.inheritable)},
		{Effective: uint32(s.effective >> 32), Permitted: uint32(s.permitted >> 32), Inheritable: uint32(s.inheritable >> 32)},
	}
}
