package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
)

func (c *cli) alertsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "alerts",
		Aliases: []string{"alert"},
		Short:   "Show what is wrong with the server, the worst first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Alerts(ctx)
				if err != nil {
					return err
				}
				return list(c, all, "STATE\tSEVERITY\tNAME\tLABELS\tSINCE\tSUMMARY", func(a brig.Alert) []string {
					return []string{string(a.State), string(a.Severity), a.Name, inLine(a.Labels), ago(a.Since), a.Summary}
				})
			})
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "rules",
		Short: "Print the rules as a file for Prometheus, with what the configuration changes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.printOf(alert.PrometheusRules)
		},
	})
	return cmd
}

func (c *cli) metricsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "What shows the metrics of a server",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "dashboard",
		Short: "Print a dashboard for Grafana",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.printOf(alert.Dashboard)
		},
	})
	return cmd
}

// printOf prints what is made of the rules that the configuration has.
func (c *cli) printOf(write func([]alert.Rule) ([]byte, error)) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	rules, err := cfg.Alerts.rules()
	if err != nil {
		return err
	}
	b, err := write(rules)
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(b)
	return err
}

// inLine writes labels in a line.
func inLine(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("%s=%s", k, labels[k]))
	}
	return strings.Join(out, ",")
}
