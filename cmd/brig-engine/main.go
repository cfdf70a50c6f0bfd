// Command brig-engine is the small binary that `make build` embeds in brig:
// gVisor and the shim and nothing else. A sandbox starts three processes of
// it, which are quicker to start than brig itself.
package main

import (
	"os"

	"github.com/brig-run/brig/provider/gvisor"
)

func main() {
	gvisor.Main()
	os.Stderr.WriteString("brig-engine is started by brig, never by hand\n")
	os.Exit(2)
}
