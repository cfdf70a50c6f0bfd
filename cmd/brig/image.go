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

// imageCommands creates the commands for images.
type imageCommands struct{ *cli }

func (c imageCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "Pull, import, build and list images",
	}
	build := &cobra.Command{Use: "build", Short: "Build an image"}
	build.AddCommand(c.buildDebian())
	cmd.AddCommand(c.list(), c.get(), c.pull(), c.importArchive(), build, c.tag(), c.remove())
	return cmd
}

func (c imageCommands) list() *cobra.Command {
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
				return list(c.cli, images, "NAME\tDIGEST\tSOURCE\tSIZE\tCREATED", func(i *brig.Image) []string {
					size := "-"
					if i.Size > 0 {
						size = fmt.Sprintf("%dMiB", i.Size>>20)
					}
					return []string{strings.Join(i.Names, ","), shortDigest(i.Digest), i.Source, size, relativeTime(i.Created)}
				})
			})
		},
	}
}

// shortDigest shortens a digest to a prefix for display.
func shortDigest(digest string) string {
	if len(digest) > 19 {
		return digest[:19]
	}
	return digest
}

func (c imageCommands) get() *cobra.Command {
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
func (c imageCommands) showImage(i *brig.Image) error {
	if c.asJSON {
		return c.printJSON(i)
	}
	_, err := fmt.Fprintln(c.stdout, i.Digest)
	return err
}

func (c imageCommands) importArchive() *cobra.Command {
	return &cobra.Command{
		Use:   "import NAME FILE",
		Short: "Import an image from an archive",
		Long: `Import an image from a tar archive, plain or compressed with gzip or zstd: the output of
docker save, an OCI layout, or a root file system. FILE - is standard input.`,
		Example: `  docker save python:3.11-slim | brig image import python -
  brig image import alpine rootfs.tar.gz`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r io.Reader = c.stdin
			if args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return unreadableError("", args[1], err)
				}
				defer f.Close()
				r = f
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				report, finish := c.newProgress()
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

func (c imageCommands) buildDebian() *cobra.Command {
	var b brig.ImageBuild
	cmd := &cobra.Command{
		Use:   "debian [NAME]",
		Short: "Build an image from Debian packages",
		Example: `  brig image build debian --packages python3,python3-numpy
  brig image build debian web --packages nodejs`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.Name = "debian"
			if len(args) == 1 {
				b.Name = args[0]
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				report, finish := c.newProgress()
				i, err := svc.BuildImage(ctx, b, report)
				finish()
				if err != nil {
					return err
				}
				return c.showImage(i)
			})
		},
	}
	cmd.Flags().StringSliceVar(&b.Packages, "packages", nil, "Debian `packages`, separated by commas")
	cmd.Flags().StringVar(&b.Suite, "suite", "", "Debian `release`, for example bookworm (default: this machine's)")
	return cmd
}

func (c imageCommands) tag() *cobra.Command {
	return &cobra.Command{
		Use:   "tag IMAGE NAME",
		Short: "Give an image another name",
		Long: `Give an image another name. Sandboxes that request NAME get IMAGE. An image that is
pulled, imported or built under NAME takes precedence. brig image rm NAME removes only the
name.`,
		Example: `  brig image tag host python:3.11-slim`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				i, err := svc.TagImage(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return c.showImage(i)
			})
		},
	}
}

func (c imageCommands) remove() *cobra.Command {
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
