//go:build race

package threads

// A static glibc program aborts with a failed assertion if the kernel's name of
// the program is not a path. This happens in a sandbox, where gVisor starts the
// agent from a file descriptor. Return an invalid origin, because the program
// does not need the directory that glibc would derive from it.

// char *_dl_get_origin(void) { return (char *)-1; }
import "C"

import (
	"syscall"

	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// Syscall is like syscall.AllThreadsSyscall, for programs with cgo.
//
//go:uintptrescapes
func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno) {
	return psx.Syscall6(trap, a1, a2, a3, 0, 0, 0)
}
