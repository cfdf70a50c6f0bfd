package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// addRequire adds the flag that says what must be enforced.
func addRequire(cmd *cobra.Command, list *[]string) {
	cmd.Flags().StringArrayVar(list, "require", nil, "refuse unless `AREA=LEVEL` is enforced, for example memory=boundary (see brig capabilities)")
}

// requirement reads --require.
func requirement(list []string) (brig.Requirement, error) {
	m, err := pairs("--require", list, false)
	if err != nil {
		return nil, err
	}
	r := wire.ToRequirement(m)
	return r, r.Check("--require")
}

func (c *cli) capabilitiesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "capabilities",
		Short: "Say how far memory, egress and every other area are enforced here",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				caps, err := svc.Capabilities(ctx)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(caps)
				}
				return c.showEnforcement(caps.Enforces)
			})
		},
	}
}

func (c *cli) sandboxAttest() *cobra.Command {
	return &cobra.Command{
		Use:   "attest NAME",
		Short: "Find out what is enforced on it, from its host and from inside",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Attest(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(s)
				}
				return c.showEnforcement(s.Enforcement)
			})
		},
	}
}

// showEnforcement prints a table, with gaps in the stead of what enforces.
func (c *cli) showEnforcement(areas map[brig.Area]brig.Enforcement) error {
	var rows [][]string
	for _, a := range brig.Areas {
		if e, ok := areas[a]; ok {
			rows = append(rows, []string{string(a), string(e.Level), clean(inWords(e))})
		}
	}
	return c.table("AREA\tLEVEL\tHOW", rows)
}

// inWords says in a line how an area is enforced, or what is missing.
func inWords(e brig.Enforcement) string {
	if len(e.Gaps) > 0 {
		return strings.Join(e.Gaps, "; ")
	}
	return e.How
}

// enforcement are doctor's findings: what is not a boundary, and all that is.
func enforcement(ctx context.Context, svc brig.Service) []finding {
	caps, err := svc.Capabilities(ctx)
	if err != nil {
		return []finding{failed("enforcement", err)}
	}
	var list []finding
	var whole []string
	for _, a := range brig.Areas {
		e := caps.Enforces[a]
		if e.Level == brig.LevelBoundary {
			whole = append(whole, string(a))
			continue
		}
		list = append(list, finding{Name: string(a), State: "note", Detail: string(e.Level) + ": " + inWords(e), Fix: e.Help})
	}
	return append([]finding{{Name: "enforcement", State: "ok", Detail: "boundary: " + strings.Join(whole, ", ")}}, list...)
}
