package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c sandboxCommands) logs() *cobra.Command {
	var o brig.LogOptions
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the output of a sandbox's programs",
		Long: `Print the output of a sandbox's programs. The logs of a stopped sandbox stay until it
is removed. With --follow, the command prints new output until the sandbox ends, and counts
as use of the sandbox.`,
		Example: `  brig sandbox logs one --tail 20
  brig sandbox logs one --follow --times`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				r, err := svc.Logs(ctx, args[0], o)
				if err != nil {
					return err
				}
				defer r.Close()
				out := c.guestOutput(c.stdout)
				if _, err = io.Copy(out, r); o.Follow && ctx.Err() != nil {
					err = nil // the user interrupted the command
				}
				return errors.Join(err, finish(out))
			})
		},
	}
	cmd.Flags().IntVarP(&o.Tail, "tail", "n", 0, "print only the last `n` lines")
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "print new output until the sandbox ends")
	cmd.Flags().BoolVarP(&o.Times, "times", "t", false, "print the time before each line")
	return cmd
}
