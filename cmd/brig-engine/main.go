// Command brig-engine is the small binary that `make build` embeds in brig. It contains only gVisor
// and the shim. Each sandbox runs it in one process, or in three processes if a gofer is needed.
// brig-engine starts faster than brig itself.
package main

import (
	"fmt"
	"os"

	"github.com/brig-run/brig/provider/gvisor"
)

func main() {
	gvisor.Main()
	fmt.Fprintln(os.Stderr, "brig-engine is started by brig, never by hand")
	os.Exit(2)
}
