package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
)

// initConfig is the configuration of a machine's first process.
type initConfig struct {
	Dir, Hostname string
	Bare, Plain   bool
	Programs      map[string]string
}

// ownDirs lists the directories in a machine's directory that the machine
// itself uses.
var ownDirs = []string{"workspace", "home", "upper", "work", "root"}

// EnterNamespaces sets up the namespaces of a machine in the current process,
// and reports whether only one account exists in them. Afterwards the process
// can run as the machine's agent.
func EnterNamespaces(args []string) (plain bool, err error) {
	var o initConfig
	if len(args) != 1 {
		return false, errors.New("there is nothing to enter")
	}
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return false, fmt.Errorf("read order: %w", err)
	}
	if err := o.configureNetwork(); err != nil {
		return o.Plain, err
	}
	// Mounts here must not propagate to the host.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return o.Plain, fmt.Errorf("part from the mounts of others: %w", err)
	}
	if o.Bare {
		err = o.mountBare()
	} else {
		err = o.mountLayers()
	}
	if err != nil {
		return o.Plain, err
	}
	if err := syscall.Sethostname([]byte(o.Hostname)); err != nil && o.Hostname != "" {
		return o.Plain, fmt.Errorf("set host name: %w", err)
	}
	if err := o.writePrograms(); err != nil {
		return o.Plain, err
	}
	return o.Plain, os.Chdir("/")
}

// mountBare keeps the existing file system, but mounts separate /tmp and /proc
// file systems for the machine.
func (o initConfig) mountBare() error {
	for _, dir := range []string{"/workspace", "/home/user"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	if o.Plain {
		if err := o.bindEtc(); err != nil {
			return err
		}
	}
	// This mount also hides the supervisor's directory, if that is below /tmp.
	if err := syscall.Mount("tmpfs", "/tmp", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mount /tmp: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// hiddenDirs lists the directories whose content is hidden from machines.
var hiddenDirs = []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/root"}

// mountLayers creates a root with a private layer above the existing files. It adds the machine's
// own directories, /proc and devices to the root, and enters the root.
func (o initConfig) mountLayers() error {
	for _, d := range ownDirs {
		if err := os.MkdirAll(filepath.Join(o.Dir, d), 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	root, layer := filepath.Join(o.Dir, "root"), o.mountOverlay
	if o.Plain {
		layer = o.bindRoot
	}
	if err := layer(root); err != nil {
		return err
	}
	for _, step := range []func(root string) error{o.writeAccounts, o.makeDirs, o.mountProcesses, o.mountDevices} {
		if err := step(root); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return nil
}

// mountOverlay mounts an overlay above all existing files.
func (o initConfig) mountOverlay(root string) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", o.Dir, o.Dir)
	if err := syscall.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("put a layer on the machine's files: %w", err)
	}
	// Other mounts are not part of the overlay. Bind them read-only.
	for _, mountPoint := range mounts {
		if !o.isBelowReplaced(mountPoint) {
			_ = bind(mountPoint, root+mountPoint, syscall.MS_RDONLY|syscall.MS_NOSUID) // on failure the directory is empty
		}
	}
	return nil
}

// isBelowReplaced reports whether a mount point is below a directory that the machine
// replaces.
func (o initConfig) isBelowReplaced(at string) bool {
	return at == "/" || strings.HasPrefix(o.Dir+"/", at+"/") || slices.ContainsFunc(append(hiddenDirs, "/workspace", "/home/user"), func(h string) bool {
		return strings.HasPrefix(at+"/", h+"/")
	})
}

// mountPoints lists the current mount points.
func mountPoints() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var out []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) > 2 {
			out = append(out, unescape.Replace(w[1]))
		}
	}
	return out, nil
}

// bind mounts a path at another path with the given flags. A user namespace cannot remove the flags
// of the original mount, so bind keeps them.
func bind(from, to string, flags uintptr) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if flags == 0 {
		return nil
	}
	const kept = syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME | syscall.MS_NODIRATIME
	var fs syscall.Statfs_t
	err := syscall.Statfs(to, &fs)
	if err == nil {
		err = syscall.Mount("", to, "", syscall.MS_BIND|syscall.MS_REMOUNT|flags|uintptr(fs.Flags)&kept, "")
	}
	if err != nil {
		err = errors.Join(err, syscall.Unmount(to, syscall.MNT_DETACH))
	}
	return err
}

// writeAccounts adds the programs' account to /etc/passwd and /etc/group, and removes other
// accounts with the same name or id.
func (o initConfig) writeAccounts(root string) error {
	for _, f := range []struct{ name, line string }{
		{"/etc/passwd", "user:x:1000:1000::/home/user:/bin/sh"}, {"/etc/group", "user:x:1000:"},
	} {
		b, err := os.ReadFile(root + f.name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read accounts: %w", err)
		}
		out := f.line + "\n"
		for line := range strings.Lines(string(b)) {
			if part := strings.SplitN(line, ":", 4); len(part) == 4 && part[0] != "user" && part[2] != "1000" {
				out += line
			}
		}
		if err := os.WriteFile(root+f.name, []byte(out), 0o644); err != nil {
			return fmt.Errorf("write accounts: %w", err)
		}
	}
	return nil
}

func (o initConfig) makeDirs(root string) error {
	for _, m := range []struct{ own, at string }{{"workspace", "/workspace"}, {"home", "/home/user"}} {
		if err := os.MkdirAll(root+m.at, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", m.at, err)
		}
		if err := bind(filepath.Join(o.Dir, m.own), root+m.at, 0); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for dir, options := range map[string]string{"/tmp": "mode=1777", "/run": "mode=755", "/root": "mode=700"} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
		if err := syscall.Mount("tmpfs", root+dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, options); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

func (o initConfig) mountProcesses(root string) error {
	proc := root + "/proc"
	if err := syscall.Mount("proc", proc, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// The agent can write to these files despite their modes, and they
	// configure the host. Make them read-only.
	for _, name := range []string{"sys", "irq", "bus", "fs", "sysrq-trigger"} {
		if _, err := os.Stat(proc + "/" + name); err != nil {
			continue
		}
		if err := bind(proc+"/"+name, proc+"/"+name, syscall.MS_RDONLY); err != nil {
			return fmt.Errorf("protect /proc/%s: %w", name, err)
		}
	}
	// An unprivileged process may not be able to mount sysfs. That is
	// acceptable, because its user owns nothing there.
	if err := syscall.Mount("sysfs", root+"/sys", "sysfs", syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil && !o.Plain {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}

func (o initConfig) mountDevices(root string) error {
	dev := root + "/dev"
	if err := syscall.Mount("tmpfs", dev, "tmpfs", syscall.MS_NOSUID|syscall.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "net/tun"} {
		if _, err := os.Stat("/dev/" + name); err != nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dev, name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			return err
		}
		if err := syscall.Mount("/dev/"+name, filepath.Join(dev, name), "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", name, err)
		}
	}
	for name, options := range map[string]string{"pts": "newinstance,ptmxmode=0666,mode=620", "shm": "mode=1777"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
		kind := map[string]string{"pts": "devpts", "shm": "tmpfs"}[name]
		if err := syscall.Mount(kind, filepath.Join(dev, name), kind, syscall.MS_NOSUID|syscall.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", name, err)
		}
	}
	for name, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}

// writePrograms writes a script for each replaced program that executes its
// replacement.
func (o initConfig) writePrograms() error {
	if len(o.Programs) == 0 {
		return nil
	}
	if err := os.MkdirAll(wire.ProgramsDir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", wire.ProgramsDir, err)
	}
	for name, is := range o.Programs {
		script := "#!/bin/sh\nexec '" + strings.ReplaceAll(is, "'", `'\''`) + "' \"$@\"\n"
		if err := os.WriteFile(filepath.Join(wire.ProgramsDir, filepath.Base(name)), []byte(script), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// configureNetwork configures the machine's network like that of every sandbox: a loopback
// interface and only IPv4.
func (o initConfig) configureNetwork() error {
	for _, which := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !o.Bare {
			return fmt.Errorf("do without IPv6: %w", err)
		}
	}
	if err := enableLoopback(); err != nil && !o.Bare {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	return nil
}

// enableLoopback brings up the loopback interface, which is the machine's only one.
func enableLoopback() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var request [40]byte // struct ifreq
	copy(request[:], "lo")
	request[16] = syscall.IFF_UP
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
