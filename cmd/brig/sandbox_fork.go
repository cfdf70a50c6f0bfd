package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// forkFlags are the flags of sandbox fork.
type forkFlags struct {
	runFlags
	name, cwd              string
	count                  int
	ttl                    time.Duration
	paused                 bool
	pauseAtEnd, pauseFiles bool
}

func (c sandboxCommands) fork() *cobra.Command {
	var f forkFlags
	cmd := &cobra.Command{
		Use:   "fork NAME",
		Short: "Create copies of a running sandbox, with its memory, programs and files",
		Long: `Create copies of a running sandbox, with its memory, programs and files, and print their
names. Programs stand still while the sandbox is saved, and then run on. If one copy fails,
none is created.

Without a flag, a copy is as the original. --allow and --deny replace all of its egress
rules; --deny '*' blocks all egress. Copies have other limits or volumes only if the
original is paused with --files-only.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.spec(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				copies, err := svc.Fork(ctx, args[0], o)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(copies)
				}
				for _, s := range copies {
					if _, err := fmt.Fprintln(c.stdout, s.Spec.Name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (f *forkFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.IntVarP(&f.count, "count", "n", 1, "number of copies")
	fl.StringVar(&f.name, "name", "", "name of the copy, if there is one")
	fl.BoolVar(&f.paused, "paused", false, "create one paused copy, which can be forked any number of times")
	fl.DurationVar(&f.ttl, "ttl", 0, "lease of each copy (default: that of the original)")
	fl.BoolVar(&f.pauseAtEnd, "pause-at-end", false, "pause each copy at the end of its lease, instead of ending it; =false ends it")
	fl.BoolVar(&f.pauseFiles, "pause-files-only", false, "--pause-at-end saves only the files, as pause --files-only does")
	f.addLimits(cmd)
	f.egress.add(cmd)
	addVolumes(cmd, &f.volumes)
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set a variable of each copy, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringArrayVar(&f.labels, "label", nil, "label of each copy, as `KEY=VALUE` (default: those of the original)")
	fl.StringVar(&f.user, "user", "", "run commands as user, root, or IDs such as 1001:1001 (default: as in the original)")
	fl.StringVar(&f.cwd, "cwd", "", "working directory of commands (default: that of the original)")
}

// spec returns the changes that the flags specify. A flag that is not set changes nothing.
func (f *forkFlags) spec(changed func(flag string) bool) (brig.ForkSpec, error) {
	o := brig.ForkSpec{Count: f.count, Name: f.name, Paused: f.paused, TTL: f.ttl, User: f.user, Dir: f.cwd}
	if o.Count < 1 {
		return o, brig.InvalidField("--count", "%d is out of bounds", o.Count).WithHint("give 1 to %d", brig.MaxForks)
	}
	if changed("pause-at-end") {
		o.AtEnd = &brig.AtEnd{Pause: f.pauseAtEnd, FilesOnly: f.pauseFiles}
	} else if f.pauseFiles {
		return o, brig.InvalidField("--pause-files-only", "it needs --pause-at-end").WithHint("give --pause-at-end, too")
	}
	if changed("allow") || changed("deny") {
		rules, err := f.egress.egress()
		if err != nil {
			return o, err
		}
		o.Egress = &rules
	} else if changed("bandwidth") {
		// The rules and the bandwidth are replaced together, so it would remove all rules.
		return o, brig.InvalidField("--bandwidth", "a fork replaces the bandwidth only with the rules").WithHint("give --allow or --deny, too")
	}
	var err error
	if o.Limits, err = f.limits(); err != nil {
		return o, err
	}
	if o.Volumes, err = parseVolumes(f.volumes); err != nil {
		return o, err
	}
	if changed("label") {
		if o.Labels, err = parsePairs("--label", f.labels, false); err != nil {
			return o, err
		}
	}
	o.Env, err = parsePairs("--env", f.env, true)
	return o, err
}
