package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// placeFlags say where something wants to be.
type placeFlags struct {
	provider, prefer string
	regions          []string
	only             bool
}

func (p *placeFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.provider, "provider", "", "`id` of the provider that is tried first (brig provider ls)")
	f.BoolVar(&p.only, "provider-only", false, "try no other than --provider")
	f.StringVar(&p.prefer, "prefer", "", "provider to prefer: cheapest or region")
	f.StringSliceVar(&p.regions, "region", nil, "`regions` to prefer, the nearest first")
}

func (p *placeFlags) placement() brig.Placement {
	return brig.Placement{Provider: p.provider, Only: p.only, Prefer: brig.Preference(p.prefer), Regions: p.regions}
}

func (c *cli) providerRoute() *cobra.Command {
	var (
		r      brig.Routing
		tenant string
		split  []string
		prefer string
		none   bool
	)
	cmd := &cobra.Command{
		Use:   "route",
		Short: "Show or say which providers are tried, and in which order",
		Long: `Show which providers are tried, and in which order. With flags, say so: what is
given takes the place of everything that was.`,
		Example: `  brig provider route --order gvisor,e2b
  brig provider route --tenant acme --overflow e2b
  brig provider route --split gvisor=9 --split e2b=1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := none
			for _, name := range []string{"order", "split", "overflow", "prefer", "region", "attempts"} {
				given = given || cmd.Flags().Changed(name)
			}
			r.Prefer = brig.Preference(prefer)
			var err error
			if r.Split, err = weights(split); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if given {
					if err := svc.SetRouting(ctx, tenant, r); err != nil {
						return err
					}
				}
				now, err := svc.Routing(ctx, tenant)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(now)
				}
				return c.showRouting(now)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "whose; default that of all who have none of their own")
	f.StringSliceVar(&r.Order, "order", nil, "`ids`, the first choice first")
	f.StringArrayVar(&split, "split", nil, "the first is chosen among these at random, by weights: `ID=WEIGHT`")
	f.StringSliceVar(&r.Overflow, "overflow", nil, "`ids` that are tried first while the first choice is full")
	f.StringVar(&prefer, "prefer", "", "cheapest or region, in the stead of the order")
	f.StringSliceVar(&r.Regions, "region", nil, "`regions` of --prefer region, the nearest first")
	f.IntVar(&r.Attempts, "attempts", 0, "how many providers are tried, 1 to 3 (default 3)")
	f.BoolVar(&none, "none", false, "no routing: the active provider alone")
	return cmd
}

// weights reads ID=WEIGHT.
func weights(list []string) (map[string]int, error) {
	var out map[string]int
	for _, s := range list {
		id, text, _ := strings.Cut(s, "=")
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, brig.InvalidField("--split", "%q is not ID=WEIGHT", s).WithHint("for example --split e2b=1")
		}
		if out == nil {
			out = map[string]int{}
		}
		out[id] = n
	}
	return out, nil
}

func (c *cli) showRouting(r *brig.Routing) error {
	lines := []string{}
	add := func(what, value string) {
		if value != "" {
			lines = append(lines, what+": "+value)
		}
	}
	add("order", strings.Join(r.Order, ", "))
	var split []string
	for _, id := range slices.Sorted(maps.Keys(r.Split)) {
		split = append(split, fmt.Sprintf("%s=%d", id, r.Split[id]))
	}
	add("split", strings.Join(split, ", "))
	add("overflow", strings.Join(r.Overflow, ", "))
	add("prefer", strings.TrimSpace(string(r.Prefer)+" "+strings.Join(r.Regions, ", ")))
	if r.Attempts > 0 {
		add("attempts", strconv.Itoa(r.Attempts))
	}
	if len(lines) == 0 {
		lines = append(lines, "the active provider alone")
	}
	_, err := fmt.Fprintln(c.stdout, strings.Join(lines, "\n"))
	return err
}
