//go:build !shim

package gvisor

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	auditArchX8664 = 0xc000003e // linux/audit.h: AUDIT_ARCH_X86_64
	archSetCPUID   = 0x1012     // asm/prctl.h: ARCH_SET_CPUID
)

// stopCPUIDFaults makes the system call that enables CPUID faulting fail in this
// process and its children. gVisor enables faulting in each of its stubs to
// emulate CPUID, and continues without faulting on CPUs that do not support it,
// such as older AMD models. CPUID returns the CPU's values in both cases. A
// fault costs 40 µs, and the loader of every dynamically linked program
// executes CPUID about 30 times (docs/adr/0035). stopCPUIDFaults must run before
// this process has many threads, because the kernel stops all of them to
// install the filter.
func stopCPUIDFaults() error {
	// struct seccomp_data: nr at 0, arch at 4, args[0] at 16.
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	program := []unix.SockFilter{
		load(4), unless(auditArchX8664, 5),
		load(0), unless(unix.SYS_ARCH_PRCTL, 3),
		load(16), unless(archSetCPUID, 1),
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.ENODEV)),
		ret(unix.SECCOMP_RET_ALLOW),
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Do not set no_new_privs: this process has CAP_SYS_ADMIN, and gVisor sets
	// no_new_privs later.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}
