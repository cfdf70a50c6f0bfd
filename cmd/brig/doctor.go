package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/provider/gvisor"
)

// finding is one thing that doctor looked at.
type finding struct {
	Name   string `json:"name"`
	State  string `json:"state"` // "ok", "note" (works with less), "fail"
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func (c *cli) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, what is missing, and how to fix it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := c.examine(cmd.Context())
			for _, f := range list {
				if f.State == "fail" {
					c.code = 1
				}
			}
			if c.asJSON {
				return c.printJSON(map[string]any{"findings": list, "ok": c.code == 0})
			}
			for _, f := range list {
				fmt.Fprintf(c.stdout, "%-4s  %-16s %s\n", f.State, f.Name, clean(f.Detail))
				if f.Fix != "" {
					fmt.Fprintf(c.stdout, "      %-16s fix: %s\n", "", f.Fix)
				}
			}
			return nil
		},
	}
}

// examine looks at everything that a sandbox needs.
func (c *cli) examine(ctx context.Context) []finding {
	list := []finding{kernel(), account()}
	if os.Geteuid() != 0 {
		list = append(list, userNamespaces()...)
	}
	dir, err := c.dataFolder()
	if err != nil {
		return append(list, failed("data folder", err))
	}
	list = append(list, dataFolder(dir), limits(dir))
	list = append(list, c.trial(ctx)...)
	return append(list, optional("mmdebstrap", "builds Debian images", "apt-get install mmdebstrap"))
}

func failed(name string, err error) finding {
	e := brig.AsError(err)
	detail := e.Message
	if e.Err != nil {
		detail += ": " + e.Err.Error()
	}
	return finding{Name: name, State: "fail", Detail: detail, Fix: e.Hint}
}

func kernel() finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return failed("kernel", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	f := finding{Name: "kernel", State: "ok", Detail: release + ", cgroup " + cgroup.Mode()}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 4 || major == 4 && minor < 14) {
		f.State, f.Fix = "fail", "use Linux 4.14 or newer"
	}
	return f
}

func account() finding {
	if os.Geteuid() == 0 {
		return finding{Name: "user", State: "ok", Detail: "root"}
	}
	return finding{Name: "user", State: "note", Detail: "not root: sandboxes run rootless; memory is measured, not limited by the kernel, and processors are given whole"}
}

// userNamespaces tries to make one as an unprivileged user, and names the
// setting that forbids it.
func userNamespaces() []finding {
	cmd := exec.Command(self, "version")
	cmd.Args[0] = "brig" // by the other name gVisor would answer
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Run()
	if err == nil {
		return []finding{{Name: "user namespaces", State: "ok", Detail: "an unprivileged user may make them"}}
	}
	var out []finding
	for _, s := range []struct{ file, bad, set string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if b, readErr := os.ReadFile(s.file); readErr == nil && strings.TrimSpace(string(b)) == s.bad {
			out = append(out, finding{Name: "user namespaces", State: "fail", Detail: s.file + " is " + s.bad, Fix: "as root: " + s.set})
		}
	}
	if out == nil {
		out = []finding{{Name: "user namespaces", State: "fail", Detail: err.Error(), Fix: "run as root, or ask what forbids user namespaces here (a container's seccomp profile, a security module)"}}
	}
	return out
}

func dataFolder(dir string) finding {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return finding{Name: "data folder", State: "fail", Detail: err.Error(), Fix: "choose a folder that you may write to with --data-dir"}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return failed("data folder", err)
	}
	free := int64(st.Bavail) * st.Bsize
	f := finding{Name: "data folder", State: "ok", Detail: fmt.Sprintf("%s, %d GiB free", dir, free>>30)}
	if free < brig.GiB {
		f.State, f.Fix = "note", "free some space: a sandbox may write 1GiB by default"
	}
	return f
}

func limits(dir string) finding {
	if os.Geteuid() != 0 {
		return finding{Name: "limits", State: "note", Detail: "memory by measuring, processors by affinity, the rest by the sandbox's own kernel"}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = gvisor.CheckCgroup(real)
	}
	if err != nil {
		return finding{
			Name: "limits", State: "note", Detail: "no cgroup can be made (" + err.Error() + "): memory is measured, not limited by the kernel",
			Fix: "mount the cgroup file system writable, with the memory and cpu controllers",
		}
	}
	return finding{Name: "limits", State: "ok", Detail: "memory, processors and processes by cgroup " + cgroup.Mode()}
}

// trial runs real programs.
func (c *cli) trial(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := c.dataFolder()
	if err != nil {
		return []finding{failed("sandbox", err)}
	}
	svc, ctx, done, err := c.local(ctx, dir, true)
	if err != nil {
		return []finding{failed("sandbox", err)}
	}
	defer done()
	start := time.Now()
	o, err := svc.Run(ctx, brig.Program{Command: []string{"/bin/sh", "-c", "uname -r"}}, brig.IO{})
	if err != nil {
		return []finding{failed("sandbox", err)}
	}
	list := []finding{{
		Name: "sandbox", State: "ok",
		Detail: fmt.Sprintf("ran in %v; its kernel is %s", time.Since(start).Round(time.Millisecond), strings.TrimSpace(string(o.Stdout.Head))),
	}}
	list = append(list, enforcement(ctx, svc)...)
	for _, l := range []struct{ name, program, fix string }{
		{"python", "python3", "apt-get install python3"},
		{"javascript", "node", "apt-get install nodejs"},
		{"bash", "bash", "apt-get install bash"},
	} {
		o, err := svc.Run(ctx, brig.Program{Command: []string{"/bin/sh", "-c", "command -v " + l.program}}, brig.IO{})
		f := finding{Name: l.name, State: "note", Detail: "the host image has no " + l.program, Fix: l.fix + ", or use another image"}
		if err == nil && o.ExitCode == 0 {
			f = finding{Name: l.name, State: "ok", Detail: strings.TrimSpace(string(o.Stdout.Head))}
		}
		list = append(list, f)
	}
	return list
}

func optional(program, use, fix string) finding {
	if p, err := exec.LookPath(program); err == nil {
		return finding{Name: program, State: "ok", Detail: p}
	}
	return finding{Name: program, State: "note", Detail: "not installed; it " + use, Fix: fix}
}
