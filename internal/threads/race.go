//go:build race

package threads

// A static program of glibc ends with an assertion if the kernel's name of the
// program is no path, as in a sandbox, where gVisor starts the agent from a file
// descriptor. Nothing uses the folder that is looked for.

// char *_dl_get_origin(void) { return (char *)-1; }
import "C"

import (
	"syscall"

	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// Syscall is syscall.AllThreadsSyscall for programs with cgo.
//
//go:uintptrescapes
func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno) {
	return psx.Syscall6(trap, a1, a2, a3, 0, 0, 0)
}
