package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func asErrno(err error) (unix.Errno, bool) { return errors.AsType[unix.Errno](err) }

// varies matches parts that differ between sandboxes and are not significant:
// inode numbers and the numbers of the sentry's own descriptors.
var varies = regexp.MustCompile(`:\[[0-9]+\]|,[rw]fdno=[0-9]+`)

func descriptors(f facts) {
	for fd := range 4096 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			continue
		}
		link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			link = errnoOf(err)
		}
		f["fd."+strconv.Itoa(fd)] = varies.ReplaceAllString(link, "")
	}
}

func mounts(f facts) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		f["mount"] = errnoOf(err)
		return
	}
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) >= 4 {
			f["mount."+w[1]] = w[2] + " " + varies.ReplaceAllString(w[3], "")
			f["write."+w[1]] = errnoOf(unix.Access(w[1], unix.W_OK))
		}
	}
	// Other places in which a program might try to leave a file.
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		if e.IsDir() {
			f["write./"+e.Name()] = errnoOf(unix.Access("/"+e.Name(), unix.W_OK))
		}
	}
	for _, dir := range []string{"/home/user", "/var/tmp", "/usr/bin", "/usr/local/bin"} {
		f["write."+dir] = errnoOf(unix.Access(dir, unix.W_OK))
	}
}

func devices(f facts) {
	_ = filepath.WalkDir("/dev", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			f["dev."+name] = errnoOf(err)
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			f["dev."+name] = errnoOf(err)
			return nil
		}
		what := map[uint32]string{
			unix.S_IFCHR: "char", unix.S_IFBLK: "block", unix.S_IFDIR: "dir", unix.S_IFLNK: "link",
			unix.S_IFREG: "file", unix.S_IFIFO: "fifo", unix.S_IFSOCK: "socket",
		}[st.Mode&unix.S_IFMT]
		switch what {
		case "char", "block":
			what += fmt.Sprintf(" %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		case "link":
			target, _ := os.Readlink(name)
			what += " " + target
		}
		f["dev."+name] = fmt.Sprintf("%s %04o %d:%d", what, st.Mode&0o7777, st.Uid, st.Gid)
		return nil
	})
}

// writable lists every file below /proc and /sys that can be opened for
// writing. The process's own directory represents those of all processes of the
// same user.
func writable(f facts) {
	for _, root := range []string{"/proc", "/proc/self/", "/proc/1/", "/sys"} {
		_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			first, _, _ := strings.Cut(strings.TrimPrefix(name, "/proc/"), "/")
			if _, err := strconv.Atoi(first); root == "/proc" && err == nil {
				return fs.SkipDir
			}
			if base := filepath.Base(name); d.IsDir() && (base == "task" || base == "fd" || base == "fdinfo") {
				return fs.SkipDir // duplicates, and pipes of the probe itself
			}
			if !d.Type().IsRegular() {
				return nil
			}
			if file, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				file.Close()
				f["writable."+name] = "opens"
			}
			return nil
		})
	}
}

// paths tries to open files that a sandbox must not contain or must not reveal.
func paths(f facts) {
	for _, name := range []string{
		"/etc/shadow", "/etc/gshadow", "/etc/machine-id", "/etc/ssh", "/etc/ssl/private", "/root", "/root/.ssh", "/home",
		"/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/systemd/private", "/run/secrets",
		"/var/lib/brig", "/var/log/syslog", "/boot", "/lost+found", "/proc/kcore", "/proc/kallsyms", "/proc/kmsg",
		"/proc/keys", "/proc/sched_debug", "/proc/timer_list", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/modprobe", "/proc/sys/kernel/random/boot_id", "/proc/config.gz", "/proc/bus", "/proc/acpi",
		"/proc/scsi", "/proc/irq", "/proc/fs", "/proc/driver", "/proc/vmcore", "/proc/self/cgroup", "/sys/fs/cgroup",
		"/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/uevent_helper", "/sys/firmware", "/sys/module",
		"/sys/class/dmi", "/sys/class/net", "/sys/block", "/sys/bus/pci", "/dev/kvm", "/dev/mem", "/dev/kmsg",
		"/dev/port", "/dev/fuse", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/mapper", "/dev/net/tun", "/dev/vhost-net",
		"/dev/vsock", "/dev/userfaultfd", "/dev/snd", "/dev/dri", "/dev/input", "/dev/console", "/dev/uinput",
	} {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		f["path."+name] = errnoOf(err)
	}
}

// walk searches the file system below root for sockets, fifos, devices and
// files that raise privileges when executed.
func walk(root string) facts {
	f := facts{}
	var found []string
	nnp := prctl(unix.PR_GET_NO_NEW_PRIVS, 0) == "1"
	_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if name == "/proc" || name == "/sys" || name == "/dev" {
			return fs.SkipDir
		}
		switch {
		case d.Type()&(fs.ModeSocket|fs.ModeDevice|fs.ModeNamedPipe) != 0:
			found = append(found, d.Type().String()+" "+name)
		case d.Type().IsRegular():
			var st unix.Stat_t
			if !nnp && unix.Lstat(name, &st) == nil && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && canRaise(name) {
				found = append(found, "raises "+name)
			}
		}
		return nil
	})
	sort.Strings(found)
	f["walk"] = strings.Join(found, "\n")
	return f
}

func canRaise(name string) bool {
	var st unix.Statfs_t
	return unix.Statfs(name, &st) != nil || st.Flags&unix.ST_NOSUID == 0
}
