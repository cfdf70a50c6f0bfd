package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of system calls for which package unix lacks constants on some
// platforms.
const (
	sysIOUringSetup = 425
	sysMemfdSecret  = 447
)

// calls tries system calls that must fail in a sandbox, and some that may
// succeed because they affect only the sandbox itself. It releases all
// resources that it acquires.
func calls(f facts) {
	// Keep all memory that was passed to the kernel reachable until the end.
	var shown []any
	defer func() { runtime.KeepAlive(shown) }()
	str := func(s string) uintptr {
		p, _ := unix.BytePtrFromString(s)
		shown = append(shown, p)
		return uintptr(unsafe.Pointer(p))
	}
	buf, attr := new([4096]byte), new([128]byte)
	attr[0], attr[4] = 1, 112 // bpf: a hash map; perf_event_open: a clock
	iovec, limit := &unix.Iovec{Base: &buf[0], Len: 8}, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	shown = append(shown, buf, attr, iovec, limit)
	mem, attrs := uintptr(unsafe.Pointer(buf)), uintptr(unsafe.Pointer(attr))
	const bad = ^uintptr(0)
	try := func(name string, nr uintptr, args ...uintptr) uintptr {
		var a [6]uintptr
		copy(a[:], args)
		r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if errno != 0 {
			f["call."+name] = unix.ErrnoName(errno)
			return bad
		}
		f["call."+name] = "allowed"
		return r
	}
	opens := func(name string, nr uintptr, args ...uintptr) {
		if fd := try(name, nr, args...); fd != bad {
			unix.Close(int(fd))
		}
	}
	try("mount.tmpfs", unix.SYS_MOUNT, str("x"), str("/mnt"), str("tmpfs"), 0, 0)
	try("mount.bind", unix.SYS_MOUNT, str("/"), str("/mnt"), 0, unix.MS_BIND, 0)
	try("mount.remount", unix.SYS_MOUNT, 0, str("/usr"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0)
	try("mount.proc", unix.SYS_MOUNT, str("x"), str("/mnt"), str("proc"), 0, 0)
	try("umount2", unix.SYS_UMOUNT2, str("/tmp"), unix.MNT_DETACH)
	try("pivot_root", unix.SYS_PIVOT_ROOT, str("/"), str("/mnt"))
	try("chroot", unix.SYS_CHROOT, str("/tmp"))
	opens("fsopen", unix.SYS_FSOPEN, str("tmpfs"), 0)
	opens("open_tree", unix.SYS_OPEN_TREE, 0, str("/"), unix.OPEN_TREE_CLONE)
	opens("fspick", unix.SYS_FSPICK, 0, str("/"), 0)
	try("move_mount", unix.SYS_MOVE_MOUNT, bad, str("/"), bad, str("/mnt"), 0)
	try("mount_setattr", unix.SYS_MOUNT_SETATTR, 0, str("/"), 0, mem, 32)
	for name, flag := range map[string]uintptr{
		"ns": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP,
	} {
		try("unshare."+name, unix.SYS_UNSHARE, flag)
	}
	opens("bpf", unix.SYS_BPF, 0, attrs, 72)
	opens("perf_event_open", unix.SYS_PERF_EVENT_OPEN, attrs, 0, bad, bad, 0)
	opens("userfaultfd", unix.SYS_USERFAULTFD, 0)
	opens("io_uring_setup", sysIOUringSetup, 4, mem)
	opens("memfd_secret", sysMemfdSecret, 0)
	opens("fanotify_init", unix.SYS_FANOTIFY_INIT, 0, 0)
	opens("openat2", unix.SYS_OPENAT2, bad, str("/"), mem, 24)
	opens("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, bad, mem, 0)
	opens("pidfd_open.init", unix.SYS_PIDFD_OPEN, 1, 0)
	try("keyctl", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, bad, 0) // keyring of the process's own session
	try("keyctl.user", unix.SYS_KEYCTL, unix.KEYCTL_READ, 1, mem, 64)
	try("add_key", unix.SYS_ADD_KEY, str("user"), str("x"), mem, 1, bad)
	try("request_key", unix.SYS_REQUEST_KEY, str("user"), str("x"), 0, bad)
	try("quotactl", unix.SYS_QUOTACTL, 0, str("/dev/vda"), 0, mem)
	try("acct", unix.SYS_ACCT, str("/tmp/acct"))
	try("swapon", unix.SYS_SWAPON, str("/tmp/swap"), 0)
	try("swapoff", unix.SYS_SWAPOFF, str("/tmp/swap"))
	try("reboot", unix.SYS_REBOOT, 1, 2, 3, 0) // with wrong magic numbers, so that it has no effect
	try("kexec_load", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)
	try("init_module", unix.SYS_INIT_MODULE, mem, 16, str(""))
	try("finit_module", unix.SYS_FINIT_MODULE, bad, str(""), 0)
	try("delete_module", unix.SYS_DELETE_MODULE, str("none"), 0)
	try("syslog", unix.SYS_SYSLOG, 3, mem, uintptr(len(buf)))
	try("settimeofday", unix.SYS_SETTIMEOFDAY, mem, 0)
	try("clock_settime", unix.SYS_CLOCK_SETTIME, 0, mem)
	try("sethostname", unix.SYS_SETHOSTNAME, str("x"), 1)
	try("setdomainname", unix.SYS_SETDOMAINNAME, str("x"), 1)
	try("iopl", unix.SYS_IOPL, 3)
	try("ioperm", unix.SYS_IOPERM, 0, 1, 1)
	try("modify_ldt", unix.SYS_MODIFY_LDT, 1, mem, 16)
	try("vhangup", unix.SYS_VHANGUP)
	try("lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE, 0, mem, 16)
	try("personality", unix.SYS_PERSONALITY, 0xffffffff)
	try("mknod.block", unix.SYS_MKNOD, str("/tmp/block"), unix.S_IFBLK|0o666, uintptr(unix.Mkdev(8, 0)))
	try("mknod.char", unix.SYS_MKNOD, str("/tmp/char"), unix.S_IFCHR|0o666, uintptr(unix.Mkdev(1, 1)))
	try("init.ptrace", unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0)
	vec := uintptr(unsafe.Pointer(iovec))
	try("init.read", unix.SYS_PROCESS_VM_READV, 1, vec, 1, vec, 1, 0)
	try("init.write", unix.SYS_PROCESS_VM_WRITEV, 1, vec, 1, vec, 1, 0)
	try("init.setpriority", unix.SYS_SETPRIORITY, 0, 1, 19)
	var rlim unix.Rlimit
	f["call.init.prlimit"] = errnoOf(unix.Prlimit(1, unix.RLIMIT_NOFILE, nil, &rlim))
	// A process that may send the null signal may send all signals. Do not kill
	// init, because that would end the sandbox before the report.
	if try("init.signal.null", unix.SYS_KILL, 1, 0) == bad {
		try("init.signal.stop", unix.SYS_KILL, 1, uintptr(unix.SIGSTOP))
		try("init.signal.kill", unix.SYS_KILL, 1, uintptr(unix.SIGKILL))
	}
	try("nice", unix.SYS_SETPRIORITY, 0, 0, ^uintptr(4))
	try("raise.nofile", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(limit)), 0)
	try("raise.nproc", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(limit)), 0)
	inject(f)
	userNamespace(f)
	// The calls that change the process's identity come last.
	if os.Getuid() != 0 {
		try("setuid.root", unix.SYS_SETUID, 0)
		try("setgid.root", unix.SYS_SETGID, 0)
	} else {
		try("setuid.other", unix.SYS_SETUID, 1000)
		try("setgid.other", unix.SYS_SETGID, 1000)
	}
	try("setgroups", unix.SYS_SETGROUPS, 0, 0)
}

// inject tries to inject input into a terminal that it does not own.
func inject(f facts) {
	b := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&b)))
	f["call.tiocsti"] = errnoOf(errno)
}

// userNamespace starts a child in a new user namespace, and records the child's
// privileges. They must have no effect outside of the namespace.
func userNamespace(f facts) {
	for name, flags := range map[string]uintptr{"user": unix.CLONE_NEWUSER, "user+mount": unix.CLONE_NEWUSER | unix.CLONE_NEWNS} {
		cmd := exec.Command("/proc/self/exe", "euid")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.Output()
		f["call.clone."+name] = errnoOf(err)
		if err == nil {
			f["call.clone."+name] = "allowed, as " + strconv.Quote(string(out))
		}
	}
}
