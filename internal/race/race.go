//go:build race

// Package race sets the race detector up in the programs that nobody hands an
// environment: the agent and the shim.
package race

import (
	"fmt"
	"os"
	"syscall"
)

// Log begins the names of the files with reports, in the folder for temporary
// files of the host.
const Log = "brig-race-report"

// Halt makes a data race end this program, so that a test fails: nobody reads
// its standard error. With a log the report is kept in a file on the host. The
// detector reads its options when a program starts, so the program starts again.
func Halt(log bool) {
	const name = "GORACE"
	if os.Getenv(name) != "" { //nolint:forbidigo // for main programs
		return
	}
	options := name + "=halt_on_error=1"
	if log {
		options += " log_path=" + os.TempDir() + "/" + Log
	}
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), options))
	fmt.Fprintln(os.Stderr, "start again with "+options+":", err)
}
