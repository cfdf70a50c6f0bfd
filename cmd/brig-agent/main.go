// Command brig-agent is the init of a sandbox. The host passes it a control
// socket as descriptor 3. It needs no files from the image that it runs in. If
// no better isolation is available, for example on an SSH host, it is also the
// supervisor of sandboxes that consist of plain processes.
package main

import (
	"fmt"
	"os"

	"github.com/brig-run/brig/guest/agent"
	"github.com/brig-run/brig/guest/supervisor"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/race"
)

func main() {
	race.ExitOnRace(false)
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		return agent.Main(args)
	}
	switch args[0] {
	case wire.SupervisorWord:
		return supervisor.Main(args[1:])
	case wire.ConnectWord:
		return supervisor.Connect(args[1:])
	case wire.NamespacesWord:
		plain, err := supervisor.EnterNamespaces(args[1:])
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
