package agent

import (
	"os"
	"slices"

	"github.com/brig-run/brig/guest/wire"
)

// controlFD is the descriptor of the control socket that a host passes.
const controlFD = 3

// Main is the main function of an agent. By default it takes over as init and
// serves until the host closes the control socket. With the argument
// shell-driver it drives a bash process, with probe it inspects the sandbox,
// with serve it accepts sessions, and with relay it relays one session. It
// returns the exit code.
func Main(args []string) int {
	if len(args) > 0 && args[0] == "shell-driver" {
		return ShellMain(args[1:])
	}
	if len(args) > 0 && args[0] == wire.ProbeWord {
		return probeMain(args[1:])
	}
	if len(args) > 0 && args[0] == wire.RelayWord {
		return relayMain()
	}
	if len(args) > 0 && args[0] == wire.ServeWord {
		return serveMain(args[1:])
	}
	a, err := New(Options{
		KeepCapabilities: slices.Contains(args, "keep-capabilities"),
		Plain:            slices.Contains(args, wire.PlainWord),
		Build:            slices.Contains(args, wire.BuildWord),
	})
	if err == nil {
		err = a.ServeControl(controlFD)
	}
	if err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	return 0
}
