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
	"github.com/brig-run/brig/api/v1"
)

// tenantCommands are the commands of brig tenant.
type tenantCommands struct{ *cli }

func (c tenantCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tenant",
		Aliases: []string{"tenants"},
		Short:   "Manage tenants, their quotas and limits",
	}
	cmd.AddCommand(c.create(), c.list(), c.get(), c.update(), c.remove())
	return cmd
}

// tenantFlags holds the flags for a tenant's quota and ceilings.
type tenantFlags struct {
	brig.Tenant
	egress, storage, workspaces, volumes, outputs, memory, disk, screening string
}

func (t *tenantFlags) addFlags(f *pflag.FlagSet) {
	q, l := &t.Quota, &t.Ceilings
	f.IntVar(&q.Sandboxes, "sandboxes", 0, "concurrent sandboxes; 0 is unlimited, also for the other flags")
	f.IntVar(&q.Paused, "paused", 0, "paused sandboxes and paused copies; 0 is 1000")
	f.IntVar(&q.Executions, "executions", 0, "concurrent executions")
	f.Int64Var(&q.ExecutionsPerDay, "executions-per-day", 0, "executions per day")
	f.DurationVar(&q.ExecutionTimePerDay, "execution-time-per-day", 0, "execution time per day")
	f.DurationVar(&q.CPUTimePerDay, "cpu-time-per-day", 0, "CPU time that sandboxes reserve per day")
	f.Float64Var(&q.MemoryPerDay, "gib-seconds-per-day", 0, "GiB-seconds of memory that sandboxes reserve per day")
	f.StringVar(&t.egress, "egress-per-day", "", "`size` of the traffic of sandboxes per day")
	f.StringVar(&t.storage, "storage", "", "total `size` of the disks of live sandboxes")
	f.StringVar(&t.workspaces, "workspaces", "", "total `size` of workspace versions")
	f.StringVar(&t.volumes, "volumes", "", "total `size` of volumes; 0 is 100 GiB")
	f.StringVar(&t.outputs, "outputs", "", "total `size` of stored outputs; the oldest are deleted first")
	f.Float64Var(&t.Budget, "budget", 0, "fire an alert if the executions of a calendar month cost more than this")
	f.Float64Var(&q.Rate, "rate", 0, "calls per second")
	f.Float64Var(&q.RatePerKey, "rate-per-key", 0, "calls per second with one key")
	f.StringVar(&t.memory, "max-memory", "", "largest `memory` limit of a sandbox")
	f.Float64Var(&l.Limits.CPUs, "max-cpus", 0, "largest CPU limit of a sandbox")
	f.StringVar(&t.disk, "max-disk", "", "largest `disk` limit of a sandbox")
	f.DurationVar(&l.MaxTTL, "max-ttl", 0, "longest lease of a sandbox")
	f.DurationVar(&l.MaxLife, "max-life", 0, "longest total lifetime of a sandbox")
	f.DurationVar(&l.MaxPause, "max-pause", 0, "longest time for which a sandbox stays paused, after its last copy, before it ends")
	f.DurationVar(&l.MaxTimeout, "max-timeout", 0, "longest time limit of an execution")
	f.StringSliceVar(&l.Images, "images", nil, "allowed images, as names, `patterns` or digests")
	f.StringVar(&t.screening, "screening", "", "`file` with additional screening rules for this tenant, in the format of screening in the configuration")
	f.BoolVar(&l.DigestsOnly, "digests-only", false, "allow images only by digest")
}

// read parses the flags whose values are sizes or file names, if they are set.
func (t *tenantFlags) read(f *pflag.FlagSet) error {
	if f.Changed("screening") {
		var s screening
		file, err := os.Open(t.screening)
		if err != nil {
			return unreadableError("--screening", t.screening, err)
		}
		defer file.Close()
		if err := yaml.NewDecoder(file, yaml.Strict()).Decode(&s); err != nil {
			return brig.InvalidField("--screening", "invalid file: %s", yaml.FormatError(err, false, true)).
				WithHint("see screening in docs/configuration.md")
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
		{"workspaces", t.workspaces, &t.Quota.Workspaces}, {"volumes", t.volumes, &t.Quota.Volumes}, {"outputs", t.outputs, &t.Quota.Outputs},
		{"max-memory", t.memory, &t.Ceilings.Limits.Memory}, {"max-disk", t.disk, &t.Ceilings.Limits.Disk},
	} {
		if !f.Changed(s.flag) {
			continue
		}
		n, err := v1.ParseSize(s.text)
		if err != nil {
			return brig.InvalidField("--"+s.flag, "%v", err)
		}
		*s.to = n
	}
	return nil
}

func (c tenantCommands) showTenant(t *brig.Tenant, err error) error {
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(t)
	}
	_, err = fmt.Fprintln(c.stdout, t.Name)
	return err
}

func (c tenantCommands) create() *cobra.Command {
	var t tenantFlags
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a tenant, with the server's default quota unless flags say otherwise",
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
	t.addFlags(cmd.Flags())
	return cmd
}

func (c tenantCommands) update() *cobra.Command {
	var t tenantFlags
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change the quota and limits that the flags name",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				var out *brig.Tenant
				err := brig.Reapply(ctx, func() error {
					now, err := svc.GetTenant(ctx, args[0])
					if err != nil {
						return err
					}
					merged, err := mergeTenant(cmd, *now)
					if err != nil {
						return err
					}
					out, err = svc.UpdateTenant(ctx, merged)
					return err
				})
				return c.showTenant(out, err)
			})
		},
	}
	t.addFlags(cmd.Flags())
	return cmd
}

// mergeTenant applies the flags that the caller set to a copy of the tenant.
func mergeTenant(cmd *cobra.Command, now brig.Tenant) (brig.Tenant, error) {
	changed := pflag.NewFlagSet("", pflag.ContinueOnError)
	merged := tenantFlags{}
	merged.addFlags(changed)
	merged.Tenant = now
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if g := changed.Lookup(f.Name); g != nil && err == nil {
			if list, ok := f.Value.(pflag.SliceValue); ok {
				merged.Ceilings.Images = list.GetSlice()
				return
			}
			err = changed.Set(f.Name, f.Value.String())
		}
	})
	if err == nil {
		err = merged.read(changed)
	}
	return merged.Tenant, err
}

func (c tenantCommands) list() *cobra.Command {
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
				return list(c.cli, all, "NAME\tSANDBOXES\tEXECUTIONS\tPER DAY\tRATE\tCREATED", func(t *brig.Tenant) []string {
					return []string{t.Name, formatBound(t.Quota.Sandboxes), formatBound(t.Quota.Executions), formatBound(int(t.Quota.ExecutionsPerDay)),
						fmt.Sprintf("%g", t.Quota.Rate), relativeTime(t.Created)}
				})
			})
		},
	}
}

func formatBound(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func (c tenantCommands) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get [NAME]",
		Short: "Show a tenant as JSON (default: your own)",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				t, err := svc.GetTenant(ctx, firstOrEmpty(args))
				if err != nil {
					return err
				}
				return c.printJSON(t)
			})
		},
	}
}

func (c tenantCommands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"remove", "delete"},
		Short:   "Remove a tenant without sandboxes, with its keys and usage",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Remove tenant %s, its keys and its usage?", args[0]); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return svc.RemoveTenant(ctx, args[0]) })
		},
	}
	addYes(cmd, &yes)
	return cmd
}

func (c observeCommands) usage() *cobra.Command {
	var q brig.UsageQuery
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show usage and cost by day",
		Example: `  brig usage --from 2026-11-01
  brig usage --tenant acme --label team`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				lines, err := svc.TenantUsage(ctx, q)
				if err != nil {
					return err
				}
				return list(c.cli, lines, "DAY\tTENANT\t"+labelHeader(q.Label)+"EXECUTIONS\tTIME\tVCPU-S\tGIB-S\tEGRESS\tSTORED\tCOST", func(l brig.UsageLine) []string {
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
	f.StringVar(&q.Tenant, "tenant", "", "show this `tenant` (default: your own; * is all)")
	f.StringVar(&q.From, "from", "", "first `day`, in UTC, for example 2026-01-31 (default: today)")
	f.StringVar(&q.To, "to", "", "last `day` (default: today)")
	f.StringVar(&q.Label, "label", "", "group by the values of this sandbox `label`")
	return cmd
}

func labelHeader(label string) string {
	if label == "" {
		return ""
	}
	return sanitizeText(label) + "\t"
}

// firstOrEmpty returns the first element of a list, or an empty string.
func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
