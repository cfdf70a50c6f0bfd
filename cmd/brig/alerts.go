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

// observeCommands are the commands that show the state of a server.
type observeCommands struct{ *cli }

func (c observeCommands) alerts() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "alerts",
		Aliases: []string{"alert"},
		Short:   "Show the server's alerts, the most severe first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Alerts(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "STATE\tSEVERITY\tNAME\tLABELS\tSINCE\tSUMMARY", func(a brig.Alert) []string {
					return []string{string(a.State), string(a.Severity), a.Name, formatLabels(a.Labels), relativeTime(a.Since), a.Summary}
				})
			})
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "rules",
		Short: "Print the alert rules for Prometheus, with the changes of the configuration",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.printRules(alert.PrometheusRules)
		},
	})
	return cmd
}

func (c observeCommands) metrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print a dashboard for the server's metrics",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "dashboard",
		Short: "Print a Grafana dashboard",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.printRules(alert.Dashboard)
		},
	})
	return cmd
}

// printRules passes the configured alert rules to write and prints the result.
func (c observeCommands) printRules(write func([]alert.Rule) ([]byte, error)) error {
	cfg, err := c.loadConfig()
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

// formatLabels formats labels as one line of KEY=VALUE pairs.
func formatLabels(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("%s=%s", k, labels[k]))
	}
	return strings.Join(out, ",")
}
