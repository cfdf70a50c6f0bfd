//go:build race

package race

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Halt makes a data race end this program. The agent and the shim start without
// an environment and tests do not see their standard error, so a test can only
// notice that they end. With log, the detector writes the report to a file on the
// host. It reads its options when a program starts, so the program restarts.
func Halt(log bool) {
	const name = "GORACE"
	if os.Getenv(name) != "" { //nolint:forbidigo // for main programs
		Watch()
		return
	}
	options := name + "=halt_on_error=1 " + Options
	if log {
		options += " log_path=" + Log
	}
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), options))
	fmt.Fprintln(os.Stderr, "start again with "+options+":", err)
}

// Watch makes a data race when the file Plant appears.
func Watch() {
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			if _, err := os.Stat(Plant); err == nil {
				planted()
				return
			}
		}
	}()
}

// planted writes a variable from two goroutines that do not synchronize.
func planted() {
	var wg sync.WaitGroup
	n := 0
	for range 2 {
		wg.Go(func() { n++ })
	}
	wg.Wait()
}
