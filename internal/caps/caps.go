// Package caps trims the capability bounding set of a process that is about to
// give up everything else itself. Each capability takes a call that stops
// every thread, so it is done early, while there are few.
package caps

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/threads"
)

// Set is a set of capabilities, a bit for each.
type Set uint64

// Of returns the set of the capabilities of these numbers.
func Of(caps ...int) (s Set) {
	for _, c := range caps {
		s |= 1 << c
	}
	return s
}

// Bounding is the bounding set of the calling thread.
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

// Settle makes keep the bounding set of all threads, and then gives up the
// right to change it (CAP_SETPCAP), so that whoever would do the same later
// sees that there is nothing left to do. What this process starts until it
// gives up its capabilities still has them, by inheriting them.
func Settle(keep Set) error {
	have := Bounding()
	if keep&^have != 0 {
		return errors.New("the bounding set lacks what it is to keep")
	}
	t, err := load()
	if err != nil {
		return err
	}
	// Only what is in the bounding set can be made inheritable.
	t.inheritable = t.permitted
	if err := t.apply(); err != nil {
		return err
	}
	for c := range drops(have &^ keep) {
		if _, _, errno := threads.Syscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	t.effective &^= 1 << unix.CAP_SETPCAP
	return t.apply()
}

// drops yields the capabilities of a set.
func drops(s Set) func(func(int) bool) {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros64(uint64(s))) {
				return
			}
		}
	}
}

// sets are the capabilities of a thread.
type sets struct{ effective, permitted, inheritable Set }

// load reads the calling thread's.
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

// apply gives all threads these.
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
