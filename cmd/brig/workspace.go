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

func (c *cli) workspaceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workspace",
		Aliases: []string{"ws", "workspaces"},
		Short:   "Keep directories that outlive sandboxes",
		Long: `Keep directories that outlive sandboxes. A sandbox that is given one begins
with a copy of its newest version at /workspace. What it writes there is kept
as a new version by brig workspace commit, and with the mode direct when the
sandbox ends, too.`,
		Example: `  brig workspace create data
  brig run --workspace data:direct -c 'open("out.txt", "w").write("hi")'
  brig workspace versions data`,
	}
	cmd.AddCommand(c.workspaceCreate(), c.workspaceList(), c.workspaceVersions(), c.workspaceFiles(), c.workspaceCat(), c.workspaceDiff(), c.workspaceRestore(),
		c.workspaceCommit(), c.workspaceRemove())
	return cmd
}

func (c *cli) workspaceCreate() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Make an empty workspace",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				w, err := svc.CreateWorkspace(ctx, args[0])
				if err != nil {
					return err
				}
				return c.answer(w, w.Name)
			})
		},
	}
}

func (c *cli) workspaceList() *cobra.Command {
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
				return list(c, all, "NAME\tVERSION\tFILES\tSIZE\tSTORE\tCREATED", func(w *brig.Workspace) []string {
					head := w.Head
					if head == nil {
						head = &brig.WorkspaceVersion{}
					}
					return []string{w.Name, strconv.Itoa(head.Number), strconv.Itoa(head.Files), brig.FormatBytes(head.Size), w.Store, ago(w.Created)}
				})
			})
		},
	}
}

func (c *cli) workspaceVersions() *cobra.Command {
	return &cobra.Command{
		Use:   "versions NAME",
		Short: "List a workspace's versions, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.WorkspaceVersions(ctx, args[0])
				if err != nil {
					return err
				}
				return list(c, all, "VERSION\tFILES\tSIZE\tCREATED\tBY\tFROM", func(v *brig.WorkspaceVersion) []string {
					from := string(v.Sandbox)
					if v.Restored > 0 {
						from = "version " + strconv.Itoa(v.Restored)
					}
					return []string{strconv.Itoa(v.Number), strconv.Itoa(v.Files), brig.FormatBytes(v.Size), ago(v.Created), v.Actor, from}
				})
			})
		},
	}
}

// versionNumber reads an argument that is a version's number.
func versionNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, brig.Errorf(brig.InvalidArgument, "%q is not a version", s).WithHint("give its number; brig workspace versions NAME lists them")
	}
	return n, nil
}

// ofVersion reads NAME[@VERSION]; without one it is the newest.
func ofVersion(s string) (name string, version int, err error) {
	name, number, pinned := strings.Cut(s, "@")
	if pinned {
		version, err = versionNumber(number)
	}
	return name, version, err
}

func (c *cli) workspaceFiles() *cobra.Command {
	return &cobra.Command{
		Use:   "files NAME[@VERSION] [PATH]",
		Short: "List a version's files, and what was captured outside /workspace",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, err := ofVersion(args[0])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.WorkspaceFiles(ctx, name, version, strings.Join(args[1:], ""))
				if err != nil {
					return err
				}
				return list(c, all, "MODE\tSIZE\tPATH", func(f brig.WorkspaceFile) []string {
					where := clean(f.Path)
					if f.Type == brig.Symlink {
						where += " -> " + clean(f.Target)
					}
					return []string{fmt.Sprintf("%04o", f.Mode), strconv.FormatInt(f.Size, 10), where}
				})
			})
		},
	}
}

func (c *cli) workspaceCat() *cobra.Command {
	return &cobra.Command{
		Use:   "cat NAME[@VERSION] PATH",
		Short: "Write a version's file to standard output",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, err := ofVersion(args[0])
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

func (c *cli) workspaceDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff NAME FROM TO",
		Short: "List the paths in which two versions differ; 0 is the empty one",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := versionNumber(args[1])
			if err != nil {
				return err
			}
			to, err := versionNumber(args[2])
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

func (c *cli) printChanges(changes []brig.WorkspaceChange) {
	signs := map[brig.WorkspaceChangeKind]string{brig.WorkspaceAdded: "A", brig.WorkspaceChanged: "M", brig.WorkspaceRemoved: "D"}
	for _, ch := range changes {
		fmt.Fprintln(c.stdout, signs[ch.Kind], cell(ch.Path))
	}
}

func (c *cli) workspaceRestore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore NAME VERSION",
		Short: "Make a new version with the content of an old one",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := versionNumber(args[1])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				v, err := svc.RestoreWorkspace(ctx, args[0], n)
				if err != nil {
					return err
				}
				return c.answer(v, "version "+strconv.Itoa(v.Number))
			})
		},
	}
}

func (c *cli) workspaceCommit() *cobra.Command {
	return &cobra.Command{
		Use:   "commit SANDBOX",
		Short: "Make a version of what a sandbox has at /workspace",
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
					fmt.Fprintln(c.stdout, "C", clean(f.Path))
				}
				if out.Version != nil {
					fmt.Fprintln(c.stdout, "version", out.Version.Number)
				}
				c.concludeWorkspace(out)
				return nil
			})
		},
	}
}

// concludeWorkspace tells what did not come along.
func (c *cli) concludeWorkspace(out *brig.WorkspaceCommit) {
	if out == nil {
		return
	}
	for _, s := range out.Skipped {
		fmt.Fprintf(c.stderr, "brig: not kept: %s: %s\n", cell(s.Path), cell(s.Reason))
	}
	if more := out.Passed - len(out.Skipped); more > 0 {
		fmt.Fprintf(c.stderr, "brig: not kept: %d more\n", more)
	}
	if e := out.Error; e != nil {
		fmt.Fprintf(c.stderr, "brig: %s (%s)\n", clean(e.Message), e.Code)
		if e.Hint != "" {
			fmt.Fprintln(c.stderr, "hint:", e.Hint)
		}
	}
}

func (c *cli) workspaceRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "Forget workspaces with all versions",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
}

// workspaceFlags say which workspace a sandbox has.
type workspaceFlags struct {
	workspace         string
	prefixes, capture []string
}

func (f *workspaceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "workspace at /workspace, as `NAME[@VERSION][:MODE]`; modes are read_only, overlay (default) and direct")
	cmd.Flags().StringArrayVar(&f.prefixes, "writable", nil, "`path` below /workspace that a commit may change (default all)")
	cmd.Flags().StringArrayVar(&f.capture, "capture", nil, "absolute `path` outside /workspace; what is written there comes along with a commit")
}

func (f *workspaceFlags) use() (brig.WorkspaceUse, error) {
	which, mode, _ := strings.Cut(f.workspace, ":")
	name, version, err := ofVersion(which)
	return brig.WorkspaceUse{Name: name, Version: version, Mode: brig.WorkspaceMode(mode), Prefixes: f.prefixes, Capture: f.capture}, err
}
