package gvisor

import (
	"os"
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
		os.Exit(shimMain(os.Args[1:]))
	case name == "runsc", strings.HasPrefix(name, "runsc-"), os.Args[0] == "/proc/self/exe":
		prefilter.Use()
		const user, internal = "", "internal use only"
		cli.Run(nil, map[util.SubCommand]string{
			new(cmd.Run): user, new(cmd.Delete): user,
			new(sentrycmd.Boot): internal, new(cmd.Gofer): internal, new(sentrycmd.Umount): internal,
		}, nil)
		os.Exit(0)
	}
}
