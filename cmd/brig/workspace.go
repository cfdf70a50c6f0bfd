package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// workspaceCommands are the commands of brig workspace.
type workspaceCommands struct{ *cli }

func (c workspaceCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workspace",
		Aliases: []string{"ws", "workspaces"},
		Short:   "Manage directories that outlive sandboxes",
		Long: `Manage directories that outlive sandboxes. A sandbox with a workspace starts with a copy
of the newest version at /workspace. brig workspace commit saves its changes as a new
version; in the mode direct, the end of the sandbox does, too.`,
		Example: `  brig workspace create data
  brig run --workspace data:direct -c 'open("out.txt", "w").write("hi")'
  brig workspace versions data`,
	}
	cmd.AddCommand(c.create(), c.list(), c.versions(), c.files(), c.cat(), c.diff(), c.restore(),
		c.commit(), c.remove())
	return cmd
}

func (c workspaceCommands) create() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create an empty workspace",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				w, err := svc.CreateWorkspace(ctx, args[0])
				if err != nil {
					return err
				}
				return c.printJSONOrLine(w, w.Name)
			})
		},
	}
}

func (c workspaceCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List workspaces",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Workspaces(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "NAME\tVERSION\tFILES\tSIZE\tSTORE\tCREATED", func(w *brig.Workspace) []string {
					head := w.Head
					if head == nil {
						head = &brig.WorkspaceVersion{}
					}
					return []string{w.Name, strconv.Itoa(head.Number), strconv.Itoa(head.Files), brig.FormatBytes(head.Size), w.Store, relativeTime(w.Created)}
				})
			})
		},
	}
}

func (c workspaceCommands) versions() *cobra.Command {
	return &cobra.Command{
		Use:   "versions NAME",
		Short: "List the versions of a workspace, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.WorkspaceVersions(ctx, args[0])
				if err != nil {
					return err
				}
				return list(c.cli, all, "VERSION\tFILES\tSIZE\tCREATED\tBY\tFROM", func(v *brig.WorkspaceVersion) []string {
					from := string(v.Sandbox)
					if v.Restored > 0 {
						from = "version " + strconv.Itoa(v.Restored)
					}
					return []string{strconv.Itoa(v.Number), strconv.Itoa(v.Files), brig.FormatBytes(v.Size), relativeTime(v.Created), v.Actor, from}
				})
			})
		},
	}
}

// parseVersion parses an argument that is a version number.
func parseVersion(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, brig.Errorf(brig.InvalidArgument, "%q is not a version number", brig.Clip(s, 40)).WithHint("list the versions with: brig workspace versions NAME")
	}
	return n, nil
}

// parseVersionRef parses NAME[@VERSION]. The default version is the newest.
func parseVersionRef(s string) (name string, version int, err error) {
	name, number, pinned := strings.Cut(s, "@")
	if pinned {
		version, err = parseVersion(number)
	}
	return name, version, err
}

func (c workspaceCommands) files() *cobra.Command {
	return &cobra.Command{
		Use:   "files NAME[@VERSION] [PATH]",
		Short: "List the files of a version",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, err := parseVersionRef(args[0])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.WorkspaceFiles(ctx, name, version, strings.Join(args[1:], ""))
				if err != nil {
					return err
				}
				return list(c.cli, all, "MODE\tSIZE\tPATH", func(f brig.WorkspaceFile) []string {
					where := sanitizeText(f.Path)
					if f.Type == brig.Symlink {
						where += " -> " + sanitizeText(f.Target)
					}
					return []string{fmt.Sprintf("%04o", f.Mode), strconv.FormatInt(f.Size, 10), where}
				})
			})
		},
	}
}

func (c workspaceCommands) cat() *cobra.Command {
	return &cobra.Command{
		Use:   "cat NAME[@VERSION] PATH",
		Short: "Print a file of a version",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, err := parseVersionRef(args[0])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				_, r, err := svc.ReadWorkspaceFile(ctx, name, version, args[1])
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

func (c workspaceCommands) diff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff NAME FROM TO",
		Short: "List the differences between two versions (0 is the empty one)",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseVersion(args[1])
			if err != nil {
				return err
			}
			to, err := parseVersion(args[2])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				changes, err := svc.DiffWorkspace(ctx, args[0], from, to)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(changes)
				}
				c.printChanges(changes)
				return nil
			})
		},
	}
}

func (c workspaceCommands) printChanges(changes []brig.WorkspaceChange) {
	signs := map[brig.WorkspaceChangeKind]string{brig.WorkspaceAdded: "A", brig.WorkspaceChanged: "M", brig.WorkspaceRemoved: "D"}
	for _, ch := range changes {
		fmt.Fprintln(c.stdout, signs[ch.Kind], sanitizeCell(ch.Path))
	}
}

func (c workspaceCommands) restore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore NAME VERSION",
		Short: "Create a new version with the content of an old one",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseVersion(args[1])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				v, err := svc.RestoreWorkspace(ctx, args[0], n)
				if err != nil {
					return err
				}
				return c.printJSONOrLine(v, "version "+strconv.Itoa(v.Number))
			})
		},
	}
}

func (c workspaceCommands) commit() *cobra.Command {
	return &cobra.Command{
		Use:   "commit SANDBOX",
		Short: "Save the /workspace of a sandbox as a new version",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				out, err := svc.CommitWorkspace(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(out)
				}
				c.printChanges(out.Changes)
				for _, f := range out.Captured {
					fmt.Fprintln(c.stdout, "C", sanitizeText(f.Path))
				}
				if out.Version != nil {
					fmt.Fprintln(c.stdout, "version", out.Version.Number)
				}
				c.printCommit(out)
				return nil
			})
		},
	}
}

// printCommit prints which files a commit skipped.
func (c *cli) printCommit(out *brig.WorkspaceCommit) {
	if out == nil {
		return
	}
	for _, s := range out.Skipped {
		fmt.Fprintf(c.stderr, "brig: not saved: %s: %s\n", sanitizeCell(s.Path), sanitizeCell(s.Reason))
	}
	if more := out.Passed - len(out.Skipped); more > 0 {
		fmt.Fprintf(c.stderr, "brig: not saved: %d more\n", more)
	}
	if e := out.Error; e != nil {
		fmt.Fprintf(c.stderr, "brig: %s (%s)\n", sanitizeText(e.Message), e.Code)
		if e.Hint != "" {
			fmt.Fprintln(c.stderr, "hint:", e.Hint)
		}
	}
}

func (c workspaceCommands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "Remove workspaces with all versions",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Remove all versions of %s?", strings.Join(args, ", ")); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, name := range args {
					if err := svc.RemoveWorkspace(ctx, name); err != nil {
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

// workspaceFlags are the flags for a sandbox's workspace.
type workspaceFlags struct {
	workspace         string
	prefixes, capture []string
}

func (f *workspaceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "start with this workspace, as `NAME[@VERSION][:MODE]`; modes are read_only, overlay (default) and direct")
	cmd.Flags().StringArrayVar(&f.prefixes, "writable", nil, "restrict commits to this `path` below /workspace (default all)")
	cmd.Flags().StringArrayVar(&f.capture, "capture", nil, "include this absolute `path` outside /workspace in commits")
}

func (f *workspaceFlags) use() (brig.WorkspaceUse, error) {
	which, mode, _ := strings.Cut(f.workspace, ":")
	name, version, err := parseVersionRef(which)
	return brig.WorkspaceUse{Name: name, Version: version, Mode: brig.WorkspaceMode(mode), Prefixes: f.prefixes, Capture: f.capture}, err
}
