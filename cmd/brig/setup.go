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

// templatePackages are the Debian packages of the templates that E2B's clients
// take for granted.
func templatePackages() map[string][]string {
	base := []string{"bash", "ca-certificates", "curl", "git", "iproute2", "nodejs", "procps", "python3", "python3-venv"}
	return map[string][]string{
		"base": base,
		"code-interpreter-v1": append(slices.Clone(base), "ipython3", "python3-matplotlib", "python3-numpy", "python3-pandas",
			"python3-pil", "python3-requests", "python3-sympy"),
	}
}

func (c *cli) setupCommand() *cobra.Command {
	known := slices.Sorted(maps.Keys(templatePackages()))
	return &cobra.Command{
		Use:   "setup [TEMPLATE…]",
		Short: "Build the images that E2B's clients take for granted, from Debian packages",
		Long: `Build the images that E2B's clients take for granted, from Debian packages:
` + strings.Join(known, " and ") + `. One that is there is left alone; remove it to
build it again. Without them these templates are the image host.`,
		ValidArgs: known,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = known
			}
			for _, name := range args {
				if !slices.Contains(known, name) {
					return brig.InvalidField("template", "%q is not one that this builds", name).WithHint("known: %s", strings.Join(known, ", "))
				}
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				for _, name := range args {
					if err := c.buildTemplate(ctx, svc, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// buildTemplate builds one image unless it is there.
func (c *cli) buildTemplate(ctx context.Context, svc brig.Service, name string) error {
	switch _, err := svc.GetImage(ctx, name); {
	case err == nil:
		fmt.Fprintf(c.stdout, "%s is there\n", name)
		return nil
	case brig.KindOf(err) != brig.NotFound:
		return err
	}
	report, finish := c.progress()
	i, err := svc.BuildImage(ctx, brig.ImageBuild{Name: name, Packages: templatePackages()[name]}, report)
	finish()
	if err != nil {
		return err
	}
	return c.showImage(i)
}
