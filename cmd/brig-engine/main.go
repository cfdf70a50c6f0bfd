// Command brig-engine is the small binary that `make build` embeds in brig:
// gVisor and the shim and nothing else. A sandbox starts three processes of
// it, which are quicker to start than brig itself.
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
