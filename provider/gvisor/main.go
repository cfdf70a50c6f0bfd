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

// Main takes over the process if argv[0] says that it is one of the provider's
// own, and then never returns. gVisor starts itself again as "runsc-…" or as
// /proc/self/exe; "runsc" gives its command line, of which only "run" and
// "delete" are linked, for comparing speeds.
func Main() {
	name := os.Args[0][strings.LastIndexByte(os.Args[0], '/')+1:]
	switch {
	case name == shimName:
		Shim()
	case name == "runsc", strings.HasPrefix(name, "runsc-"), os.Args[0] == "/proc/self/exe":
		os.Args = ready(os.Args)
		const user, internal = "", "internal use only"
		cli.Run(nil, map[util.SubCommand]string{
			new(cmd.Run): user, new(cmd.Delete): user,
			new(sentrycmd.Boot): internal, new(cmd.Gofer): internal, new(sentrycmd.Umount): internal,
		}, nil)
		os.Exit(0)
	}
}

// ready makes one of gVisor's processes that a shim has started quick to
// start; one that was started by hand is left as gVisor is. It returns the
// arguments that it is to see.
func ready(args []string) []string {
	p := parse(args)
	if p.dir == "" {
		return args
	}
	var o order
	if ok, err := (layout{dir: p.dir}).readJSON(orderFile, &o); err != nil || !ok {
		return args
	}
	delayGC()
	prefilter.Use()
	switch p.command {
	case "gofer":
		settle(&o, caps.Of(goferCaps()...))
	case "boot":
		untraced()
		_ = plainCPUID() // it is slower without
		settle(&o, caps.Of(sentryCaps()...))
		if path, err := unmounter(); err == nil && !o.Rootless {
			specutils.ExePath = path // a sentry starts itself again for this alone
		}
		return o.limited(args)
	}
	return args
}

// parsed is what matters here of the arguments of one of gVisor's processes.
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

// goferCaps are all that gVisor leaves to a gofer.
func goferCaps() []int {
	return []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SYS_CHROOT}
}

// sentryCaps are all that gVisor leaves to a sentry.
func sentryCaps() []int {
	return []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SYS_PTRACE}
}

// settle trims the bounding set to what gVisor would trim it to, before this
// process has many threads. Should it fail, gVisor does it.
func settle(o *order, keep caps.Set) {
	if !o.disabled("network") { // with the host's it keeps more
		_ = caps.Settle(keep)
	}
}

// limited adds the sandbox's limits to the arguments of a sentry that the
// shim has started in its cgroup: gVisor tells it only of cgroups that it
// joins itself. The guest sees as many processors and as much memory as it
// may use.
func (o *order) limited(args []string) []string {
	if o.Cgroup == "" || slices.Contains(args, "--cpu-num") {
		return args
	}
	// The container's name is last. What comes later counts.
	out, name := args[:len(args)-1:len(args)-1], args[len(args)-1]
	if o.Limits.CPUs > 0 {
		// Programs may skip their locks on a single processor.
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
