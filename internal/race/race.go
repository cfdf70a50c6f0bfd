//go:build race

package race

import (
	"fmt"
	"os"
	"syscall"
)

// Halt makes a data race end this program, so that a test fails: tests do not see
// its standard error. With log, the detector writes the report to a file on the
// host. It reads its options when a program starts, so the program restarts.
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
