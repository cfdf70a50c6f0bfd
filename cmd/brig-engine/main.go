// Command brig-engine is the small binary that `make build` embeds in brig:
// gVisor and the shim and nothing else. A sandbox starts one process of it, and
// three where it needs a gofer; they are quicker to start than brig itself.
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
