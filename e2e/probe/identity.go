package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstTag is below all group IDs that mark the process tree of an execution;
// these differ between executions.
const firstTag = 1 << 30

// status returns the lines of /proc/self/status.
func status() map[string]string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return map[string]string{}
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.Join(strings.Fields(v), " ")
	}
	return out
}

func identity(f facts) {
	s := status()
	f["id.uid"], f["id.gid"] = s["Uid"], s["Gid"]
	var groups []string
	tags := 0
	for _, g := range strings.Fields(s["Groups"]) {
		if n, err := strconv.ParseInt(g, 10, 64); err == nil && n > firstTag {
			tags++
			continue
		}
		groups = append(groups, g)
	}
	f["id.groups"], f["id.tags"] = strings.Join(groups, " "), strconv.Itoa(tags)
	f["id.seccomp_line"] = s["Seccomp"]
	f["id.no_new_privs"] = prctl(unix.PR_GET_NO_NEW_PRIVS, 0)
	f["id.seccomp"] = prctl(unix.PR_GET_SECCOMP, 0)
	f["id.dumpable"] = prctl(unix.PR_GET_DUMPABLE, 0)
	f["id.securebits"] = prctl(unix.PR_GET_SECUREBITS, 0)
	f["id.umask"] = fmt.Sprintf("%04o", unix.Umask(0o022))
	f["id.cwd"], _ = os.Getwd()
	sid, err := unix.Getsid(0)
	f["id.session_leader"] = strconv.FormatBool(err == nil && sid == os.Getpid())
}

func prctl(option int, arg uintptr) string {
	n, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0)
	if errno != 0 {
		return unix.ErrnoName(errno)
	}
	return strconv.Itoa(int(n))
}

func capabilities(f facts) {
	s := status()
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		f["caps."+set] = s[set]
	}
	var bounding, ambient []string
	for c := range 64 {
		if prctl(unix.PR_CAPBSET_READ, uintptr(c)) == "1" {
			bounding = append(bounding, strconv.Itoa(c))
		}
		n, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, uintptr(c), 0, 0, 0)
		if errno == 0 && n == 1 {
			ambient = append(ambient, strconv.Itoa(c))
		}
	}
	f["caps.bounding"], f["caps.ambient"] = strings.Join(bounding, " "), strings.Join(ambient, " ")
}

func limits(f facts) {
	for i, name := range []string{
		"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile",
		"memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime",
	} {
		var l unix.Rlimit
		// Go raises its own soft limit on open files, so only the hard limit is
		// significant.
		if err := unix.Prlimit(0, i, nil, &l); err != nil {
			f["rlimit."+name] = errnoOf(err)
			continue
		}
		value := func(n uint64) string {
			if n == unix.RLIM_INFINITY {
				return "unlimited"
			}
			return strconv.FormatUint(n, 10)
		}
		f["rlimit."+name] = value(l.Cur) + " " + value(l.Max)
	}
}

func machine(f facts) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f["uname"] = errnoOf(err)
		return
	}
	for name, v := range map[string][65]byte{
		"sysname": u.Sysname, "release": u.Release, "version": u.Version, "nodename": u.Nodename, "domain": u.Domainname,
	} {
		f["uname."+name] = unix.ByteSliceToString(v[:])
	}
	for _, name := range []string{"/proc/version", "/proc/cmdline", "/proc/self/cgroup", "/etc/hostname", "/etc/resolv.conf", "/etc/hosts", "/etc/passwd"} {
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte(errnoOf(err))
		}
		f["text."+name] = strings.TrimSpace(string(b))
	}
}

func environment(f facts) {
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		f["env."+k] = v
	}
}

// errnoOf returns the name of a kernel error, or "allowed" for nil.
func errnoOf(err error) string {
	if err == nil {
		return "allowed"
	}
	if e, ok := asErrno(err); ok {
		if name := unix.ErrnoName(e); name != "" {
			return name
		}
	}
	return err.Error()
}
