// Command brig-shim is the small binary that `make build` embeds in brig. It
// supervises a sandbox. It does not contain gVisor, which runs in a separate
// process, so it starts faster than brig-engine and uses less memory.
package main

import (
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/provider/gvisor"
)

func main() {
	race.ExitOnRace(true)
	gvisor.Shim()
}
