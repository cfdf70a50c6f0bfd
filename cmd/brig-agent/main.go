// Command brig-agent is the init of a sandbox. The host hands it a control
// socket as descriptor 3; it needs nothing from the image that it runs in.
package main

import (
	"os"

	"github.com/brig-run/brig/guest/agent"
)

func main() { os.Exit(agent.Main(os.Args[1:])) }
