package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// templateCommands creates the commands for templates.
type templateCommands struct{ *cli }

func (c templateCommands) command() *cobra.Command {
	cmd := &cobra.Command{Use: "template", Aliases: []string{"templates"}, Short: "Build and list the templates for sandboxes"}
	cmd.AddCommand(c.list(), c.build(), c.show(), c.logs(), c.cancel(), c.tag(), c.untag(), c.remove())
	return cmd
}

// useTemplates calls f with the service of built templates.
func (c templateCommands) useTemplates(cmd *cobra.Command, f func(context.Context, brig.TemplateService) error) error {
	return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
		templates, ok := svc.(brig.TemplateService)
		if !ok {
			return brig.Errorf(brig.Unimplemented, "this service builds no templates")
		}
		return f(ctx, templates)
	})
}

func (c templateCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List templates",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Templates(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "NAME\tIMAGE\tSTART\tREADY\tTAGS", func(t brig.Template) []string {
					if t.Built != nil {
						return []string{t.Name, "(built)", "-", "-", strings.Join(slices.Sorted(maps.Keys(t.Built.Tags)), ",")}
					}
					start := formatCommand(t.Start)
					if t.Entrypoint {
						start = "(the image's)"
					}
					return []string{t.Name, t.Image, start, formatCommand(t.Ready), "-"}
				})
			})
		},
	}
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

func (c templateCommands) show() *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Aliases: []string{"get"},
		Short:   "List the builds of a template, newest first",
		Long: `List the builds of a template that your tenant has built, newest first. With --json, print
the template with its tags and builds.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
				t, err := svc.GetTemplate(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(t)
				}
				return list(c.cli, t.Builds, "BUILD\tSTATUS\tTAGS\tCREATED\tTOOK\tFAILURE", func(b *brig.TemplateBuild) []string {
					return buildRow(t, b)
				})
			})
		},
	}
}

func buildRow(t *brig.TemplateDetails, b *brig.TemplateBuild) []string {
	var tags []string
	for _, tag := range slices.Sorted(maps.Keys(t.Tags)) {
		if t.Tags[tag].Build == b.ID {
			tags = append(tags, tag)
		}
	}
	took, failure := "-", "-"
	if !b.Started.IsZero() && !b.Finished.IsZero() {
		took = formatAge(b.Finished.Sub(b.Started))
	}
	if f := b.Failure; f != nil {
		failure, _, _ = strings.Cut(f.Message, "\n")
		failure = brig.Clip(stepName(f.Step)+": "+failure, 80)
	}
	return []string{b.ID, string(b.Status), strings.Join(tags, ","), relativeTime(b.Created), took, failure}
}

// stepName returns the name of a phase of a build.
func stepName(step string) string {
	switch step {
	case "base":
		return "the image"
	case "finalize":
		return "the start"
	}
	return "step " + step
}

func (c templateCommands) logs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:     "logs NAME [BUILD]",
		Aliases: []string{"log"},
		Short:   "Print the log of a build, by default of the newest",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
				id, err := buildArgument(ctx, svc, args)
				if err != nil {
					return err
				}
				if follow {
					_, err := svc.FollowTemplateBuild(ctx, args[0], id, 0, c.printBuildLine)
					if ctx.Err() != nil {
						return nil //nolint:nilerr // the user interrupted the command
					}
					return err
				}
				b, err := svc.GetTemplateBuild(ctx, args[0], id)
				if err != nil {
					return err
				}
				for _, l := range b.Log {
					if err := c.printBuildLine(l); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until the build has ended")
	return cmd
}

// buildArgument returns the ID of the build in the arguments NAME [BUILD], or that of the newest build.
func buildArgument(ctx context.Context, svc brig.TemplateService, args []string) (string, error) {
	if len(args) > 1 {
		return args[1], nil
	}
	t, err := svc.GetTemplate(ctx, args[0])
	if err != nil {
		return "", err
	}
	if len(t.Builds) == 0 {
		return "", brig.Errorf(brig.NotFound, "template %q has no builds", t.Name)
	}
	return t.Builds[0].ID, nil
}

// printBuildLine prints a line of a build's log.
func (c templateCommands) printBuildLine(l brig.BuildLine) error {
	if c.asJSON {
		return c.printJSON(l)
	}
	_, err := fmt.Fprintln(c.stdout, sanitizeText(l.Text))
	return err
}

func (c templateCommands) cancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel NAME [BUILD]",
		Short: "End a running build, by default the newest",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
				id, err := buildArgument(ctx, svc, args)
				if err != nil {
					return err
				}
				return svc.CancelTemplateBuild(ctx, args[0], id)
			})
		},
	}
}

func (c templateCommands) tag() *cobra.Command {
	return &cobra.Command{
		Use:   "tag NAME[:TAG] TAG…",
		Short: "Give the build of a tag more tags",
		Long: `Give the build of a tag more tags, or move them to it. The default tag is "default". A
build to which no tag refers any more loses its files.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, from, _ := strings.Cut(args[0], ":")
			return c.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
				for _, tag := range args[1:] {
					if err := svc.TagTemplate(ctx, name, from, tag); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (c templateCommands) untag() *cobra.Command {
	return &cobra.Command{
		Use:   "untag NAME TAG…",
		Short: "Remove tags; builds without tags lose their files",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
				for _, tag := range args[1:] {
					if err := svc.UntagTemplate(ctx, args[0], tag); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (c templateCommands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "Remove built templates with their builds; their sandboxes stay",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Remove all builds of %s?", strings.Join(args, ", ")); err != nil {
				return err
			}
			return c.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
				for _, name := range args {
					if err := svc.RemoveTemplate(ctx, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	addYes(cmd, &yes)
	return cmd
}
