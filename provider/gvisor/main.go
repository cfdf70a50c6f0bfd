package gvisor

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/brig-run/brig/internal/prefilter"
)

// shimName is the argv[0] of a shim.
const shimName = "brig-shim"

// Main takes over the process if argv[0] says that it is one of the provider's
// own, and then never returns. gVisor starts itself again as "runsc-…" or as
// /proc/self/exe; "runsc" gives its command line, of which only "run" and
// "delete" are linked, for comparing speeds.
func Main() {
	name := os.Args[0][strings.LastIndexByte(os.Args[0], '/')+1:]
	switch {
	case name == shimName:
		delayGC()
		os.Exit(shimMain(os.Args[1:]))
	case name == "runsc", strings.HasPrefix(name, "runsc-"), os.Args[0] == "/proc/self/exe":
		delayGC()
		prefilter.Use()
		const user, internal = "", "internal use only"
		cli.Run(nil, map[util.SubCommand]string{
			new(cmd.Run): user, new(cmd.Delete): user,
			new(sentrycmd.Boot): internal, new(cmd.Gofer): internal, new(sentrycmd.Umount): internal,
		}, nil)
		os.Exit(0)
	}
}

// firstGC is how much more than usual a process may allocate until memory is
// first collected, in percent: with it no collection falls into its start.
const firstGC = 800

// delayGC puts the first garbage collection off. After it all is as usual.
func delayGC() {
	usual := debug.SetGCPercent(firstGC)
	runtime.SetFinalizer(new([16]byte), func(*[16]byte) { debug.SetGCPercent(usual) })
}
