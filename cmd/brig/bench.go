//go:build bench

package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// benchProgram is the one-shot program that all contenders run, and benchOutput is its output.
const (
	benchProgram = "print(6*7)"
	benchOutput  = "42\n"
)

// benchCommands creates the commands of brig-bench.
type benchCommands struct{ *cli }

// program returns the root command of brig-bench. If argv[0] is "brig", it returns the root command
// of brig, because a benchmark starts its servers under that name.
func (c *cli) program() *cobra.Command {
	if filepath.Base(os.Args[0]) == "brig" {
		return c.root()
	}
	cmd := &cobra.Command{
		Use:   "brig-bench",
		Short: "Measure brig against its peers on this machine",
		Long: `Measure brig against its peers on this machine, in the same minutes.

Brig is measured through its REST API: a server and its client run in this
process, with a data folder of their own beside the usual one, which is gone
afterwards. Peers are bare processes, gVisor's own command line with the same
engine, and docker where it is present.

CPU is user and system time. A peer's is that of its process and its children.
Brig's is that of this process (server and client), of its shims and of all
sandboxes, by the kernel's accounts of their cgroups, which include processes that
ended. It counts from before the call until the sandbox has ended and the pool is
full again, so the cost of the next pooled sandbox is included. The CPU time of
Docker's daemon is not counted.

Figures are for comparing. Nothing here fails for being slow.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.addFlags(cmd.PersistentFlags())
	b := benchCommands{c}
	cmd.AddCommand(b.run(), b.context(), b.burst(), b.overload(), b.abuseCommand(), b.density(), b.scale(), b.stream(), b.state(),
		b.chaosCommand(), b.soakCommand(), b.e2b(), b.egress(), b.workspace())
	return finishRoot(c, cmd)
}
