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

// placeFlags are the flags for the placement of a sandbox or a run.
type placeFlags struct {
	provider, prefer string
	regions          []string
	only             bool
}

func (p *placeFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.provider, "provider", "", "try the provider with this `id` first (brig provider ls)")
	f.BoolVar(&p.only, "provider-only", false, "use no other provider than --provider")
	f.StringVar(&p.prefer, "prefer", "", "provider to prefer: cheapest or region")
	f.StringSliceVar(&p.regions, "region", nil, "preferred `regions`, the nearest first")
}

func (p *placeFlags) placement() brig.Placement {
	return brig.Placement{Provider: p.provider, Only: p.only, Prefer: brig.Preference(p.prefer), Regions: p.regions}
}

func (c providerCommands) route() *cobra.Command {
	var (
		r      brig.Routing
		tenant string
		split  []string
		prefer string
		none   bool
	)
	cmd := &cobra.Command{
		Use:   "route",
		Short: "Show or change the routing between providers",
		Long: `Show the order in which the server tries providers. Flags change the settings that they
name; --none removes all settings first.`,
		Example: `  brig provider route --order gvisor,e2b
  brig provider route --tenant acme --overflow e2b
  brig provider route --split gvisor=9 --split e2b=1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			change := none
			for _, name := range []string{"order", "split", "overflow", "prefer", "region", "attempts"} {
				change = change || cmd.Flags().Changed(name)
			}
			r.Prefer = brig.Preference(prefer)
			var err error
			if r.Split, err = parseWeights(split); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if change {
					err := brig.Reapply(ctx, func() (err error) {
						current := &brig.Routing{}
						if !none {
							if current, err = svc.Routing(ctx, tenant); err != nil {
								return err
							}
						}
						return svc.SetRouting(ctx, tenant, changedRouting(*current, r, cmd.Flags().Changed))
					})
					if err != nil {
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
	f.StringVar(&tenant, "tenant", "", "`tenant` whose routing it is (default: all tenants without their own)")
	f.StringSliceVar(&r.Order, "order", nil, "`ids` of providers, the first choice first")
	f.StringArrayVar(&split, "split", nil, "choose the first provider at random by weight, as `ID=WEIGHT`")
	f.StringSliceVar(&r.Overflow, "overflow", nil, "`ids` of providers to use while the first choice is full")
	f.StringVar(&prefer, "prefer", "", "cheapest or region, instead of the order")
	f.StringSliceVar(&r.Regions, "region", nil, "`regions` for --prefer region, the nearest first")
	f.IntVar(&r.Attempts, "attempts", 0, "number of providers to try, 1 to 3 (default 3)")
	f.BoolVar(&none, "none", false, "remove the routing: use only the active provider")
	return cmd
}

// changedRouting returns a copy of a routing. For each set flag, the copy has the value of r.
func changedRouting(was, r brig.Routing, changed func(flag string) bool) brig.Routing {
	for flag, set := range map[string]func(){
		"order": func() { was.Order = r.Order }, "split": func() { was.Split = r.Split }, "overflow": func() { was.Overflow = r.Overflow },
		"prefer": func() { was.Prefer = r.Prefer }, "region": func() { was.Regions = r.Regions }, "attempts": func() { was.Attempts = r.Attempts },
	} {
		if changed(flag) {
			set()
		}
	}
	return was
}

// parseWeights parses a list of ID=WEIGHT pairs.
func parseWeights(list []string) (map[string]int, error) {
	var out map[string]int
	for _, s := range list {
		id, text, _ := strings.Cut(s, "=")
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, brig.InvalidField("--split", "%q is not ID=WEIGHT", brig.Clip(s, 80)).WithHint("for example --split e2b=1")
		}
		if out == nil {
			out = map[string]int{}
		}
		out[id] = n
	}
	return out, nil
}

func (c providerCommands) showRouting(r *brig.Routing) error {
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
		lines = append(lines, "only the active provider")
	}
	_, err := fmt.Fprintln(c.stdout, strings.Join(lines, "\n"))
	return err
}
