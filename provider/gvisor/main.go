//go:build !shim

package gvisor

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/brig-run/brig/internal/caps"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/prefilter"
)

// Main runs one of the provider's own programs if argv[0] names it, and does
// not return in that case. gVisor re-executes itself as "runsc-…" or as
// /proc/self/exe. "runsc" is its command line with only "run" and "delete"
// linked, for performance comparisons.
func Main() {
	name := os.Args[0][strings.LastIndexByte(os.Args[0], '/')+1:]
	switch {
	case name == shimName:
		Shim()
	case name == "runsc", strings.HasPrefix(name, "runsc-"), os.Args[0] == "/proc/self/exe":
		os.Args = prepareProcess(os.Args)
		const user, internal = "", "internal use only"
		cli.Run(nil, map[util.SubCommand]string{
			new(cmd.Run): user, new(cmd.Delete): user,
			new(sentrycmd.Boot): internal, new(cmd.Gofer): internal, new(sentrycmd.Umount): internal,
		}, nil)
		os.Exit(0)
	}
}

// prepareProcess speeds up the start of a gVisor process that a shim has
// started, and returns the process's arguments. It has no effect on a process
// that was started by hand.
func prepareProcess(args []string) []string {
	p := parse(args)
	if p.dir == "" {
		return args
	}
	var o order
	if ok, err := (layout{dir: p.dir}).readJSON(orderFile, &o); err != nil || !ok {
		return args
	}
	delayGC()
	prefilter.Install()
	switch p.command {
	case "gofer":
		dropCapabilities(&o, caps.Of(goferCaps()...))
	case "boot":
		skipTracePoints()
		args = countRefusals(args)
		completeWrites(hostTable())
		_ = stopCPUIDFaults() // if this fails, programs only start more slowly
		dropCapabilities(&o, caps.Of(sentryCaps()...))
		if path, err := unmounter(); err == nil && !o.Rootless {
			specutils.ExePath = path // a sentry re-executes itself only to unmount
		}
		return o.withLimits(args)
	}
	return args
}

// parsed contains the relevant arguments of a gVisor process.
type parsed struct{ command, dir string }

func parse(args []string) (p parsed) {
	for i, a := range args {
		switch {
		case a == "boot" || a == "gofer":
			p.command = a
		case a == "--bundle" && i+1 < len(args):
			p.dir = args[i+1]
		}
		if dir, ok := strings.CutPrefix(a, "--bundle="); ok {
			p.dir = dir
		}
	}
	return p
}

// goferCaps returns the capabilities that gVisor leaves to a gofer.
func goferCaps() []int {
	return []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SYS_CHROOT}
}

// sentryCaps returns the capabilities that gVisor leaves to a sentry.
func sentryCaps() []int {
	return []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SYS_PTRACE}
}

// dropCapabilities reduces the bounding set before this process has many
// threads. If it fails, gVisor reduces the set later.
func dropCapabilities(o *order, keep caps.Set) {
	if !o.isDisabled("network") { // gVisor keeps more capabilities if it uses the host's network
		_ = caps.Settle(keep)
	}
}

// withLimits adds the sandbox's limits to the arguments of a sentry that the
// shim has started in its cgroup: gVisor passes them only for cgroups that it
// joins itself. The guest then sees only the CPUs and memory that it may use.
func (o *order) withLimits(args []string) []string {
	if o.Cgroup == "" || slices.Contains(args, "--cpu-num") {
		return args
	}
	// The last argument is the container's name. Later flags override earlier
	// ones.
	out, name := args[:len(args)-1:len(args)-1], args[len(args)-1]
	if o.Limits.CPUs > 0 {
		// Use at least 2, because programs may omit locks on a single CPU.
		n := min(max(int(math.Ceil(o.Limits.CPUs)), 2), runtime.NumCPU())
		quota, period := cgroup.Quota(o.Limits.CPUs)
		out = append(out, fmt.Sprintf("--cpu-num=%d", n), fmt.Sprintf("--cpu-quota=%d", quota), fmt.Sprintf("--cpu-period=%d", period))
	}
	var host unix.Sysinfo_t
	if unix.Sysinfo(&host) == nil && o.Limits.Memory > 0 {
		out = append(out, fmt.Sprintf("--total-memory=%d", min(uint64(o.Limits.Memory), host.Totalram*uint64(host.Unit))))
	}
	return append(out, name)
}
