//go:build race

package race

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this build has the race detector.
const Enabled = true

// ExitOnRace makes this program exit on a data race. The agent and the shim start
// without an environment, and tests cannot read their standard error, so a test
// can only detect that they exit. If log is set, the detector writes the report
// to a file on the host. The detector reads its options at program start, so
// the program re-executes itself.
func ExitOnRace(log bool) {
	const name = "GORACE"
	if os.Getenv(name) != "" { //nolint:forbidigo // for main programs
		StartRaceOnFile()
		return
	}
	options := name + "=halt_on_error=1 " + Options
	if log {
		options += " log_path=" + Log
	}
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), options))
	fmt.Fprintln(os.Stderr, "start again with "+options+":", err)
}

// StartRaceOnFile causes a data race when the file Plant appears.
func StartRaceOnFile() {
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			if _, err := os.Stat(Plant); err == nil {
				causeRace()
				return
			}
		}
	}()
}

// causeRace writes a variable from two goroutines without synchronization.
func causeRace() {
	var wg sync.WaitGroup
	n := 0
	for range 2 {
		wg.Go(func() { n++ })
	}
	wg.Wait()
}
