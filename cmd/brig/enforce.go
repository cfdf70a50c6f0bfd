package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// addRequire adds the flag for the required enforcement.
func addRequire(cmd *cobra.Command, list *[]string) {
	cmd.Flags().StringArrayVar(list, "require", nil, "fail unless the provider enforces `AREA=LEVEL`, for example memory=boundary (see brig capabilities)")
}

// parseRequirement parses --require.
func parseRequirement(list []string) (brig.Requirement, error) {
	m, err := parsePairs("--require", list, false)
	if err != nil {
		return nil, err
	}
	r := v1.ToRequirement(m)
	return r, r.Check("--require")
}

func (c observeCommands) capabilities() *cobra.Command {
	return &cobra.Command{
		Use:   "capabilities",
		Short: "Show which limits are enforced, and how",
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

func (c sandboxCommands) attest() *cobra.Command {
	return &cobra.Command{
		Use:   "attest NAME",
		Short: "Verify which limits are enforced on a sandbox, from the host and from inside",
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

// showEnforcement prints a table of areas with the mechanism of each area, or its gaps.
func (c *cli) showEnforcement(areas map[brig.Area]brig.Enforcement) error {
	var rows [][]string
	for _, a := range brig.Areas {
		if e, ok := areas[a]; ok {
			rows = append(rows, []string{string(a), string(e.Level), sanitizeText(describeEnforcement(e))})
		}
	}
	return c.printTable("AREA\tLEVEL\tHOW", rows)
}

// describeEnforcement returns one line with the gaps of an area's enforcement or, without gaps, its
// mechanism.
func describeEnforcement(e brig.Enforcement) string {
	if len(e.Gaps) > 0 {
		return strings.Join(e.Gaps, "; ")
	}
	return e.How
}

// checkEnforcement returns one finding for each area whose level is below boundary, and one for all
// areas at boundary.
func checkEnforcement(ctx context.Context, svc brig.Service) []finding {
	caps, err := svc.Capabilities(ctx)
	if err != nil {
		return []finding{newFailedFinding("enforcement", err)}
	}
	var list []finding
	var whole []string
	for _, a := range brig.Areas {
		e := caps.Enforces[a]
		if e.Level == brig.LevelBoundary {
			whole = append(whole, string(a))
			continue
		}
		list = append(list, finding{Name: string(a), State: "note", Detail: string(e.Level) + ": " + describeEnforcement(e), Fix: e.Help})
	}
	return append([]finding{{Name: "enforcement", State: "ok", Detail: "boundary: " + strings.Join(whole, ", ")}}, list...)
}
