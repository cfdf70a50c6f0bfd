package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c hostCommands) setup() *cobra.Command {
	var known []string
	for _, t := range builtinTemplates() {
		known = append(known, t.Name)
	}
	return &cobra.Command{
		Use:   "setup [TEMPLATE…]",
		Short: "Build the images of templates from Debian packages",
		Long: `Build the images of templates from Debian packages: ` + strings.Join(known, " and ") + `,
which E2B clients expect, and templates of the configuration that list packages. An
existing image is kept; remove it to build it again. Until they are built, the image host
replaces the templates that E2B clients expect.`,
		ValidArgs: known,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				wanted, err := selectTemplates(ctx, svc, args)
				if err != nil {
					return err
				}
				for _, t := range wanted {
					if err := c.buildTemplate(ctx, svc, t); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// selectTemplates returns the templates with the given names, or, without names, all templates
// that can be built.
func selectTemplates(ctx context.Context, svc brig.Service, names []string) (wanted []brig.Template, err error) {
	all, err := svc.Templates(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t brig.Template) bool { return len(t.Packages) == 0 })
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, t := range all {
		known = append(known, t.Name)
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, brig.InvalidField("template", "%q is not a template with packages", name).WithHint("use one of: %s", strings.Join(known, ", "))
		}
		wanted = append(wanted, all[i])
	}
	return wanted, nil
}

// buildTemplate builds the image of a template unless it exists.
func (c hostCommands) buildTemplate(ctx context.Context, svc brig.Service, t brig.Template) error {
	switch _, err := svc.GetImage(ctx, t.Image); {
	case err == nil:
		fmt.Fprintf(c.stdout, "%s exists already\n", t.Name)
		return nil
	case brig.KindOf(err) != brig.NotFound:
		return err
	}
	report, finish := c.newProgress()
	i, err := svc.BuildImage(ctx, brig.ImageBuild{Name: t.Image, Packages: t.Packages}, report)
	finish()
	if err != nil {
		return err
	}
	return imageCommands(c).showImage(i)
}
