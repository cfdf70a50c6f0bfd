// Command brig-agent is the init of a sandbox. The host hands it a control
// socket as descriptor 3; it needs nothing from the image that it runs in.
// Where there is nothing that makes sandboxes, it keeps machines of processes
// itself.
package main

import (
	"fmt"
	"os"

	"github.com/brig-run/brig/guest/agent"
	"github.com/brig-run/brig/guest/keeper"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/race"
)

func main() {
	race.Halt(false)
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		return agent.Main(args)
	}
	switch args[0] {
	case wire.KeeperWord:
		return keeper.Main(args[1:])
	case wire.ReachWord:
		return keeper.Reach(args[1:])
	case wire.PlaceWord:
		plain, err := keeper.Enter(args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "brig-agent:", err)
			return 1
		}
		if plain {
			return agent.Main([]string{wire.PlainWord})
		}
		return agent.Main(nil)
	}
	return agent.Main(args)
}
