package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// templateCommands creates the commands for templates.
type templateCommands struct{ *cli }

func (c templateCommands) command() *cobra.Command {
	cmd := &cobra.Command{Use: "template", Aliases: []string{"templates"}, Short: "List the templates for sandboxes"}
	cmd.AddCommand(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List templates",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Templates(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "NAME\tIMAGE\tSTART\tREADY", func(t brig.Template) []string {
					start := formatCommand(t.Start)
					if t.Entrypoint {
						start = "(the image's)"
					}
					return []string{t.Name, t.Image, start, formatCommand(t.Ready)}
				})
			})
		},
	})
	return cmd
}

// formatCommand formats a command for a table.
func formatCommand(c *brig.Command) string {
	if c == nil {
		return "-"
	}
	line := []rune(c.Shell + strings.Join(c.Argv, " "))
	if len(line) > 40 {
		line = append(line[:40], '…')
	}
	return strings.ReplaceAll(string(line), "\n", " ")
}
