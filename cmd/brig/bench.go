package main

import (
	"github.com/spf13/cobra"
)

// benchProgram is what everyone runs who runs a one-shot.
const (
	benchProgram = "print(6*7)"
	benchOutput  = "42\n"
)

func (c *cli) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure brig against its peers on this machine",
		Long: `Measure brig against its peers on this machine, in the same minutes.

Brig is measured through its REST API: a server and its client run in this
process, with a data folder of their own beside the usual one, which is gone
afterwards. Peers are bare processes, gVisor's own command line with the same
engine, and docker where it is present.

CPU is user and system time. A peer's is that of its process and its children.
Brig's is that of this process (server and client), of its shims and of all
sandboxes, by the kernel's accounts of their cgroups, which lose nothing that
ended; from before the call until the sandbox has ended and the pool is full
again, so that whoever uses one from the pool pays for the one that replaces
it. Docker's is its daemon's, and is not counted.

Figures are for comparing. Nothing here fails for being slow.`,
	}
	cmd.AddCommand(c.benchRun(), c.benchContext(), c.benchBurst(),
		c.benchDensity(), c.benchScale(), c.benchStream(), c.benchChaos(), c.benchSoak(), c.benchE2B(), c.benchEgress(), c.benchWorkspace())
	return cmd
}
