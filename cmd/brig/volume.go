package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// volumeCommands are the commands of brig volume.
type volumeCommands struct{ *cli }

func (c volumeCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "volume",
		Aliases: []string{"vol", "volumes"},
		Short:   "Manage directories that sandboxes share",
		Long: `Manage directories that outlive sandboxes, and that several sandboxes can mount at the same
time. A sandbox sees at once what another one writes. A volume has a fixed size.`,
		Example: `  brig volume create data --size 2GiB
  brig sandbox create one --volume data:/data
  brig volume put data report.csv`,
	}
	cmd.AddCommand(c.create(), c.list(), c.files(), c.cat(), c.put(), c.removeFile(), c.remove())
	return cmd
}

func (c volumeCommands) create() *cobra.Command {
	var size string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an empty volume",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var bytes int64
			if size != "" {
				var err error
				if bytes, err = v1.ParseSize(size); err != nil {
					return brig.InvalidField("--size", "%v", err)
				}
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				v, err := svc.CreateVolume(ctx, args[0], bytes)
				if err != nil {
					return err
				}
				return c.printJSONOrLine(v, v.Name)
			})
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "`size` of its file system, for example 2GiB (default: the server's, 1GiB)")
	return cmd
}

func (c volumeCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List volumes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Volumes(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "NAME\tSIZE\tUSED\tCREATED\tID", func(v *brig.Volume) []string {
					return []string{v.Name, brig.FormatBytes(v.Size), brig.FormatBytes(v.Used), relativeTime(v.Created), v.ID}
				})
			})
		},
	}
}

func (c volumeCommands) files() *cobra.Command {
	depth := 1
	cmd := &cobra.Command{
		Use:   "files NAME [PATH]",
		Short: "List a directory of a volume",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.VolumeFiles(args[0]).List(ctx, "/"+strings.Join(args[1:], ""), depth)
				if err != nil {
					return err
				}
				return list(c.cli, all, "MODE\tUID\tGID\tSIZE\tMODIFIED\tPATH", func(e *brig.VolumeEntry) []string {
					where := sanitizeText(e.Path)
					if e.Type == brig.Symlink {
						where += " -> " + sanitizeText(e.Target)
					}
					id := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
					return []string{fmt.Sprintf("%04o", e.Mode), id(e.UID), id(e.GID), strconv.FormatInt(e.Size, 10), relativeTime(e.Modified), where}
				})
			})
		},
	}
	cmd.Flags().IntVar(&depth, "depth", 1, "number of levels")
	return cmd
}

func (c volumeCommands) cat() *cobra.Command {
	return &cobra.Command{
		Use:   "cat NAME PATH",
		Short: "Print a file of a volume",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				_, r, err := svc.VolumeFiles(args[0]).Read(ctx, args[1])
				if err != nil {
					return err
				}
				defer r.Close()
				_, err = io.Copy(c.stdout, r)
				return err
			})
		},
	}
}

func (c volumeCommands) put() *cobra.Command {
	return &cobra.Command{
		Use:   "put NAME FILE [PATH]",
		Short: "Write a file to a volume (- is the standard input)",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := path.Base(args[1])
			if len(args) > 2 {
				to = args[2]
			}
			from := c.stdin
			if args[1] == "-" {
				if len(args) < 3 {
					return brig.Errorf(brig.InvalidArgument, "the path in the volume is missing").WithHint("give it after the -")
				}
			} else {
				f, err := os.Open(args[1])
				if err != nil {
					return unreadableError("FILE", args[1], err)
				}
				defer f.Close()
				from = f
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				e, err := svc.VolumeFiles(args[0]).Write(ctx, to, brig.VolumeWrite{Force: true}, from)
				if err != nil {
					return err
				}
				return c.printJSONOrLine(e, e.Path)
			})
		},
	}
}

func (c volumeCommands) removeFile() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm-file NAME PATH",
		Short: "Remove a file or a directory of a volume",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Remove %s from %s?", args[1], args[0]); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return svc.VolumeFiles(args[0]).Remove(ctx, args[1])
			})
		},
	}
	addYes(cmd, &yes)
	return cmd
}

func (c volumeCommands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "Remove volumes with their files",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Remove all files of %s?", strings.Join(args, ", ")); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, name := range args {
					if err := svc.RemoveVolume(ctx, name); err != nil {
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

// addVolumes adds the flag for the volumes of a sandbox.
func addVolumes(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVarP(to, "volume", "v", nil, "mount a volume, as `NAME:PATH[:ro]`; ro allows no writes")
}

// parseVolumes parses the values of the flag.
func parseVolumes(values []string) (out []brig.VolumeMount, err error) {
	for _, text := range values {
		parts := strings.Split(text, ":")
		if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
			return nil, brig.InvalidField("--volume", "%q is not NAME:PATH[:ro]", brig.Clip(text, 80)).WithHint("for example data:/data")
		}
		out = append(out, brig.VolumeMount{Name: parts[0], Path: parts[1], ReadOnly: len(parts) == 3 && parts[2] == "ro"})
	}
	return out, nil
}
