package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func (c *cli) tenantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tenant",
		Aliases: []string{"tenants"},
		Short:   "Create, list, change and remove tenants",
	}
	cmd.AddCommand(c.tenantCreate(), c.tenantList(), c.tenantGet(), c.tenantUpdate(), c.tenantRemove())
	return cmd
}

// terms are the flags that a tenant's quota and ceilings have.
type terms struct {
	brig.Tenant
	egress, storage, workspaces, memory, disk, screening string
}

func (t *terms) flags(f *pflag.FlagSet) {
	q, l := &t.Quota, &t.Ceilings
	f.IntVar(&q.Sandboxes, "sandboxes", 0, "sandboxes that live at once; 0 is no bound, here and below")
	f.IntVar(&q.Executions, "executions", 0, "executions that go on at once")
	f.Int64Var(&q.ExecutionsPerDay, "executions-per-day", 0, "executions on one day")
	f.DurationVar(&q.ExecutionTimePerDay, "execution-time-per-day", 0, "time of executions on one day")
	f.DurationVar(&q.CPUTimePerDay, "cpu-time-per-day", 0, "processor time that sandboxes reserve on one day")
	f.Float64Var(&q.MemoryPerDay, "gib-seconds-per-day", 0, "GiB-seconds that sandboxes reserve on one day")
	f.StringVar(&t.egress, "egress-per-day", "", "`size` of what sandboxes send and receive on one day")
	f.StringVar(&t.storage, "storage", "", "`size` of what sandboxes that live may write")
	f.StringVar(&t.workspaces, "workspaces", "", "`size` of what versions of workspaces take")
	f.Float64Var(&t.Budget, "budget", 0, "what executions of a calendar month may cost before an alert says so")
	f.Float64Var(&q.Rate, "rate", 0, "calls a second")
	f.Float64Var(&q.RatePerKey, "rate-per-key", 0, "calls a second with one key")
	f.StringVar(&t.memory, "max-memory", "", "the most `memory` of a sandbox")
	f.Float64Var(&l.Limits.CPUs, "max-cpus", 0, "the most processors of a sandbox")
	f.StringVar(&t.disk, "max-disk", "", "the largest `disk` of a sandbox")
	f.DurationVar(&l.MaxTTL, "max-ttl", 0, "the longest lease")
	f.DurationVar(&l.MaxLife, "max-life", 0, "the longest life of a sandbox")
	f.DurationVar(&l.MaxTimeout, "max-timeout", 0, "the longest execution")
	f.StringSliceVar(&l.Images, "images", nil, "names, `patterns` or digests of the images that may be used")
	f.StringVar(&t.screening, "screening", "", "`file` with what of screening a configuration has: code that is refused of this tenant's alone")
	f.BoolVar(&l.DigestsOnly, "digests-only", false, "images must be asked for by their digest")
}

// read reads those of the flags that are sizes or files and were given.
func (t *terms) read(f *pflag.FlagSet) error {
	if f.Changed("screening") {
		var s screening
		file, err := os.Open(t.screening)
		if err != nil {
			return brig.InvalidField("--screening", "the file cannot be read").Because(err)
		}
		defer file.Close()
		if err := yaml.NewDecoder(file, yaml.Strict()).Decode(&s); err != nil {
			return brig.InvalidField("--screening", "the file is wrong: %s", yaml.FormatError(err, false, true)).
				WithHint("it has mode, python, javascript and others, as below screening in docs/configuration.md")
		}
		if t.Ceilings.Screening, err = s.rules(); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		flag, text string
		to         *int64
	}{
		{"egress-per-day", t.egress, &t.Quota.EgressPerDay}, {"storage", t.storage, &t.Quota.Storage},
		{"workspaces", t.workspaces, &t.Quota.Workspaces},
		{"max-memory", t.memory, &t.Ceilings.Limits.Memory}, {"max-disk", t.disk, &t.Ceilings.Limits.Disk},
	} {
		if !f.Changed(s.flag) {
			continue
		}
		n, err := wire.ParseSize(s.text)
		if err != nil {
			return brig.InvalidField("--"+s.flag, "%v", err)
		}
		*s.to = n
	}
	return nil
}

func (c *cli) showTenant(t *brig.Tenant, err error) error {
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(t)
	}
	_, err = fmt.Fprintln(c.stdout, t.Name)
	return err
}

func (c *cli) tenantCreate() *cobra.Command {
	var t terms
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a tenant; without flags it has the server's quota for new ones",
		Example: "  brig tenant create acme --sandboxes 20 --executions 10 --max-memory 2GiB --images 'host,python:*'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.read(cmd.Flags()); err != nil {
				return err
			}
			t.Name = args[0]
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.showTenant(svc.CreateTenant(ctx, t.Tenant))
			})
		},
	}
	t.flags(cmd.Flags())
	return cmd
}

func (c *cli) tenantUpdate() *cobra.Command {
	var t terms
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change those parts of a tenant's quota and ceilings that are given",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				now, err := svc.GetTenant(ctx, args[0])
				if err != nil {
					return err
				}
				// What was given, over what there is.
				given := pflag.NewFlagSet("", pflag.ContinueOnError)
				merged := terms{}
				merged.flags(given)
				merged.Tenant = *now
				cmd.Flags().Visit(func(f *pflag.Flag) {
					if g := given.Lookup(f.Name); g != nil && err == nil {
						if list, ok := f.Value.(pflag.SliceValue); ok {
							merged.Ceilings.Images = list.GetSlice()
							return
						}
						err = given.Set(f.Name, f.Value.String())
					}
				})
				if err == nil {
					err = merged.read(given)
				}
				if err != nil {
					return err
				}
				return c.showTenant(svc.UpdateTenant(ctx, merged.Tenant))
			})
		},
	}
	t.flags(cmd.Flags())
	return cmd
}

func (c *cli) tenantList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List tenants",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Tenants(ctx)
				if err != nil {
					return err
				}
				return list(c, all, "NAME\tSANDBOXES\tEXECUTIONS\tPER DAY\tRATE\tCREATED", func(t *brig.Tenant) []string {
					return []string{t.Name, bound(t.Quota.Sandboxes), bound(t.Quota.Executions), bound(int(t.Quota.ExecutionsPerDay)),
						fmt.Sprintf("%g", t.Quota.Rate), ago(t.Created)}
				})
			})
		},
	}
}

func bound(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func (c *cli) tenantGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get [NAME]",
		Short: "Show a tenant as JSON, your own by default",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				t, err := svc.GetTenant(ctx, first(args))
				if err != nil {
					return err
				}
				return c.printJSON(t)
			})
		},
	}
}

func (c *cli) tenantRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"remove", "delete"},
		Short:   "Forget a tenant that has no sandboxes, with its keys and usage",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return svc.RemoveTenant(ctx, args[0]) })
		},
	}
}

func (c *cli) usageCommand() *cobra.Command {
	var q brig.UsageQuery
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what was used, by day",
		Example: `  brig usage --from 2026-11-01
  brig usage --tenant acme --label team`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				lines, err := svc.TenantUsage(ctx, q)
				if err != nil {
					return err
				}
				return list(c, lines, "DAY\tTENANT\t"+labelHeader(q.Label)+"EXECUTIONS\tTIME\tVCPU-S\tGIB-S\tEGRESS\tSTORED\tCOST", func(l brig.UsageLine) []string {
					row := []string{l.Day, l.Tenant}
					if q.Label != "" {
						row = append(row, l.Value)
					}
					return append(row, fmt.Sprint(l.Executions), l.ExecutionTime.Round(time.Millisecond).String(),
						fmt.Sprintf("%.1f", l.CPUTime.Seconds()), fmt.Sprintf("%.1f", l.Memory), brig.FormatBytes(l.Egress), brig.FormatBytes(l.Stored), fmt.Sprintf("%.4f", l.Cost))
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Tenant, "tenant", "", "whose `tenant` (default: your own; * is all)")
	f.StringVar(&q.From, "from", "", "the first `day`, as 2006-01-02 of UTC (default: today)")
	f.StringVar(&q.To, "to", "", "the last `day` (default: today)")
	f.StringVar(&q.Label, "label", "", "by the values of a `label` of sandboxes")
	return cmd
}

func labelHeader(label string) string {
	if label == "" {
		return ""
	}
	return clean(label) + "\t"
}
