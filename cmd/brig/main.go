// Command brig is the server and the command line. Depending on argv[0], it is
// also the isolation engine and the sandbox's init.
//
//	brig run ──┬─▶ engine ─▶ provider/gvisor ─▶ shim ─▶ sentry ─▶ agent
//	brig …   ──┘     │                           (this binary, or the small
//	                 ▼                            ones that are embedded in it)
//	               store
//	brig serve ─▶ api/rest ─▶ engine …
//	brig … with BRIG_URL ─▶ client ─▶ api/rest of that server
package main

import (
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/guest/agent"
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/provider/gvisor"
)

// compilerName is the argv[0] of a process that compiles TypeScript.
const compilerName = "brig-typescript"

func main() {
	gvisor.Main() // does not return for the engine's own processes
	switch filepath.Base(os.Args[0]) {
	case agentName:
		os.Exit(agent.Main(os.Args[1:]))
	case compilerName:
		err := interpreter.Confine()
		if err == nil {
			err = interpreter.TypeScriptMain(os.Stdin, os.Stdout)
		}
		if err != nil {
			os.Exit(1)
		}
		return
	}
	// Prevent child processes from inheriting file descriptors of our parent. Kernels before 5.11
	// do not support this flag; there, child processes inherit them.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	race.StartRaceOnFile()
	paceGC()
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
