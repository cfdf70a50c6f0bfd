package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c *cli) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "List, pull, import, build and remove images",
	}
	build := &cobra.Command{Use: "build", Short: "Build an image"}
	build.AddCommand(c.imageBuildDebian())
	cmd.AddCommand(c.imageList(), c.imageGet(), c.imagePull(), c.imageImport(), build, c.imageRemove())
	return cmd
}

func (c *cli) imageList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List images",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				images, err := svc.Images(ctx)
				if err != nil {
					return err
				}
				return list(c, images, "NAME\tDIGEST\tSOURCE\tSIZE\tCREATED", func(i *brig.Image) []string {
					size := "-"
					if i.Size > 0 {
						size = fmt.Sprintf("%dMiB", i.Size>>20)
					}
					return []string{strings.Join(i.Names, ","), short(i.Digest), i.Source, size, ago(i.Created)}
				})
			})
		},
	}
}

// short cuts a digest to what tells it from others.
func short(digest string) string {
	if len(digest) > 19 {
		return digest[:19]
	}
	return digest
}

func (c *cli) imageGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get IMAGE",
		Short: "Show an image as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				i, err := svc.GetImage(ctx, args[0])
				if err != nil {
					return err
				}
				return c.printJSON(i)
			})
		},
	}
}

// showImage prints a new image as JSON, or its digest.
func (c *cli) showImage(i *brig.Image) error {
	if c.asJSON {
		return c.printJSON(i)
	}
	_, err := fmt.Fprintln(c.stdout, i.Digest)
	return err
}

func (c *cli) imageImport() *cobra.Command {
	return &cobra.Command{
		Use:   "import NAME FILE",
		Short: "Import a root file system, an OCI layout or a docker archive (tar, gzip or zstd; - is standard input)",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r io.Reader = c.stdin
			if args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return brig.InvalidField("FILE", "%q cannot be read", args[1]).WithHint("give a tar archive").Because(err)
				}
				defer f.Close()
				r = f
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				report, finish := c.progress()
				i, err := svc.ImportImage(ctx, args[0], r, report)
				finish()
				if err != nil {
					return err
				}
				return c.showImage(i)
			})
		},
	}
}

func (c *cli) imageBuildDebian() *cobra.Command {
	var b brig.ImageBuild
	cmd := &cobra.Command{
		Use:   "debian [NAME]",
		Short: "Build an image of Debian packages",
		Example: `  brig image build debian --packages python3,python3-numpy
  brig image build debian web --packages nodejs`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.Name = "debian"
			if len(args) == 1 {
				b.Name = args[0]
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				report, finish := c.progress()
				i, err := svc.BuildImage(ctx, b, report)
				finish()
				if err != nil {
					return err
				}
				return c.showImage(i)
			})
		},
	}
	cmd.Flags().StringSliceVar(&b.Packages, "packages", nil, "Debian `packages`, with commas between")
	cmd.Flags().StringVar(&b.Suite, "suite", "", "Debian release (default: this machine's)")
	return cmd
}

func (c *cli) imageRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm IMAGE…",
		Aliases: []string{"remove"},
		Short:   "Remove images that no sandbox uses",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, ref := range args {
					if err := svc.RemoveImage(ctx, ref); err != nil {
						return err
					}
					if !c.asJSON {
						fmt.Fprintln(c.stdout, ref)
					}
				}
				return nil
			})
		},
	}
}
