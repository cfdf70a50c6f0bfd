// Command brig-shim is the small binary that `make build` embeds in brig: what
// looks after a sandbox, and nothing of gVisor, which is a process of its own.
// It is quicker to start than brig-engine, and takes less memory.
package main

import (
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/provider/gvisor"
)

func main() {
	race.Halt(true)
	gvisor.Shim()
}
