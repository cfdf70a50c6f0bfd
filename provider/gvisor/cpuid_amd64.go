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

// plainCPUID has this process and all that it starts fail to make CPUID a
// fault. gVisor has each of its stubs do so, to answer the instruction itself,
// and goes on without where the processor cannot: AMD's could not for years. The
// answer is the processor's either way, a fault costs 40 µs, and the loader of
// every program with libraries asks some thirty times (docs/adr/0035).
// It must come before this process has many threads, which the kernel stops.
func plainCPUID() error {
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
	// Without no_new_privs: here is CAP_SYS_ADMIN, and gVisor sets it later.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}
