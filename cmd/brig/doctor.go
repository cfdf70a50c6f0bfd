package main

import (
	"context"
	"fmt"
	"io"
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

// finding is the result of one check of brig doctor.
type finding struct {
	Name   string `json:"name"`
	State  string `json:"state"` // "ok", "note" (works with limitations) or "fail"
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// hostCommands creates the commands that check and prepare this machine.
type hostCommands struct{ *cli }

func (c hostCommands) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run sandboxes, and how to fix it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := c.runChecks(cmd.Context())
			for _, f := range list {
				if f.State == "fail" {
					c.code = 1
				}
			}
			if c.asJSON {
				return c.printJSON(map[string]any{"findings": list, "ok": c.code == 0})
			}
			for _, f := range list {
				printFinding(c.stdout, f)
			}
			return nil
		},
	}
}

// printFinding prints the result of a check, and the remedy.
func printFinding(w io.Writer, f finding) {
	color := map[string]string{"ok": green, "note": yellow, "fail": red}[f.State]
	fmt.Fprintf(w, "%s  %-16s %s\n", colorize(w, color, fmt.Sprintf("%-4s", f.State)), f.Name, sanitizeText(f.Detail))
	if f.Fix != "" {
		fmt.Fprintf(w, "      %-16s fix: %s\n", "", sanitizeText(f.Fix))
	}
}

// runChecks runs all checks of this machine.
func (c hostCommands) runChecks(ctx context.Context) []finding {
	list := []finding{checkKernel(), checkAccount()}
	if os.Geteuid() != 0 {
		list = append(list, checkUserNamespaces()...)
	}
	dir, err := c.resolveDataFolder()
	if err != nil {
		return append(list, newFailedFinding("data folder", err))
	}
	list = append(list, checkDataFolder(dir), checkLimits(dir))
	list = append(list, c.healthCheck(ctx)...)
	return append(list, checkOptionalProgram("mmdebstrap", "builds Debian images", "apt-get install mmdebstrap"))
}

func newFailedFinding(name string, err error) finding {
	e := brig.AsError(err)
	detail := e.Message
	if e.Err != nil {
		detail += ": " + e.Err.Error()
	}
	return finding{Name: name, State: "fail", Detail: detail, Fix: e.Hint}
}

func checkKernel() finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return newFailedFinding("kernel", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	f := finding{Name: "kernel", State: "ok", Detail: release + ", cgroup " + cgroup.Mode()}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 4 || major == 4 && minor < 14) {
		f.State, f.Fix = "fail", "use Linux 4.14 or newer"
	}
	return f
}

func checkAccount() finding {
	if os.Geteuid() == 0 {
		return finding{Name: "user", State: "ok", Detail: "root"}
	}
	return finding{Name: "user", State: "note", Detail: "not root: sandboxes run rootless; Brig measures memory instead of the kernel limiting it, and CPU limits are whole processors", Fix: "run as root for exact limits"}
}

// checkUserNamespaces tries to create a user namespace as an unprivileged user. If that fails, it
// reports the settings that forbid it.
func checkUserNamespaces() []finding {
	cmd := exec.Command(self, "version")
	cmd.Args[0] = "brig" // under other names, the binary runs gVisor
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Run()
	if err == nil {
		return []finding{{Name: "user namespaces", State: "ok", Detail: "an unprivileged user can create them"}}
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
		out = []finding{{Name: "user namespaces", State: "fail", Detail: err.Error(), Fix: "run as root, or allow user namespaces (a container's seccomp profile or a security module forbids them)"}}
	}
	return out
}

func checkDataFolder(dir string) finding {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return finding{Name: "data folder", State: "fail", Detail: err.Error(), Fix: "choose a folder that you can write to with --data-dir"}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return newFailedFinding("data folder", err)
	}
	free := int64(st.Bavail) * st.Bsize
	f := finding{Name: "data folder", State: "ok", Detail: fmt.Sprintf("%s, %d GiB free", dir, free>>30)}
	if free < brig.GiB {
		f.State, f.Fix = "note", "free space: by default a sandbox can write 1GiB"
	}
	return f
}

func checkLimits(dir string) finding {
	if os.Geteuid() != 0 {
		return finding{Name: "limits", State: "note", Detail: "memory by measurement, CPU by affinity, the rest by the sandbox's own kernel"}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = gvisor.CheckCgroup(real)
	}
	if err != nil {
		return finding{
			Name: "limits", State: "note", Detail: "cannot create a cgroup (" + err.Error() + "): Brig measures memory instead of the kernel limiting it",
			Fix: "mount the cgroup file system writable, with the memory and cpu controllers",
		}
	}
	return finding{Name: "limits", State: "ok", Detail: "memory, CPU and processes by cgroup " + cgroup.Mode()}
}

// healthCheck runs a test program in a sandbox, and checks which interpreters the host image
// contains.
func (c hostCommands) healthCheck(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := c.resolveDataFolder()
	if err != nil {
		return []finding{newFailedFinding("sandbox", err)}
	}
	svc, ctx, done, err := c.openLocal(ctx, dir, true)
	if err != nil {
		return []finding{newFailedFinding("sandbox", err)}
	}
	defer done()
	start := time.Now()
	o, err := svc.Run(ctx, brig.Program{Command: []string{"/bin/sh", "-c", "uname -r"}}, brig.IO{})
	if err != nil {
		return []finding{newFailedFinding("sandbox", err)}
	}
	list := []finding{{
		Name: "sandbox", State: "ok",
		Detail: fmt.Sprintf("ran in %v; its kernel is %s", time.Since(start).Round(time.Millisecond), strings.TrimSpace(string(o.Stdout.Head))),
	}}
	list = append(list, checkEnforcement(ctx, svc)...)
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

func checkOptionalProgram(program, use, fix string) finding {
	if p, err := exec.LookPath(program); err == nil {
		return finding{Name: program, State: "ok", Detail: p}
	}
	return finding{Name: program, State: "note", Detail: "not installed (it " + use + ")", Fix: fix}
}
