//go:build !race

// Package threads makes a system call on every thread of the process. Go's own function does
// not support programs with cgo, which the race detector requires. In such programs, the
// package uses libpsx instead, so that the agent and the shim can run with the race detector.
package threads

import "syscall"

// Syscall calls syscall.AllThreadsSyscall.
//
//go:uintptrescapes
func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno) {
	return syscall.AllThreadsSyscall(trap, a1, a2, a3)
}
