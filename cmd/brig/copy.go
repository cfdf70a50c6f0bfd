package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// fileCommands creates the subcommands of brig sandbox for files.
type fileCommands struct{ *cli }

func (c fileCommands) copy() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files between this machine and a sandbox",
		Long: `Copy a file or a directory into a sandbox or out of one. One of SRC and DST is NAME:PATH,
a path in the sandbox NAME; the other is a local path. Write ./a:b for a local path with
a colon. If DST is an existing directory, the copy goes into it. Links and devices in a
directory are skipped.`,
		Example: `  brig sandbox cp data.csv one:/workspace/
  brig sandbox cp one:/workspace/out ./results`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromInside := parseGuestPath(args[0])
			to, toInside := parseGuestPath(args[1])
			if fromInside == toInside {
				return brig.Errorf(brig.InvalidArgument, "one of SRC and DST must be in a sandbox, and the other on this machine").
					WithHint("for example brig sandbox cp NAME:/workspace/a .")
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if toInside {
					in := copyIn{fileCopy{c.cli, svc.Files(to.name), user}}
					return in.copy(ctx, args[0], to.path)
				}
				out := copyOut{fileCopy{c.cli, svc.Files(from.name), user}}
				return out.copy(ctx, from.path, args[1])
			})
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "owner of the new files in the sandbox: user (default) or root")
	return cmd
}

// guestPath is a path in a sandbox.
type guestPath struct{ name, path string }

// parseGuestPath parses NAME:PATH. It returns false if s has a different format.
func parseGuestPath(s string) (guestPath, bool) {
	name, p, ok := strings.Cut(s, ":")
	if !ok || name == "" || strings.ContainsAny(name, "/.") {
		return guestPath{}, false
	}
	return guestPath{name, p}, true
}

// fileCopy is a copy in progress.
type fileCopy struct {
	c     *cli
	files brig.Files
	user  string
}

func (c fileCopy) path(p string) brig.Path { return brig.Path{Name: p, User: c.user} }

// copyIn copies files into a sandbox.
type copyIn struct{ fileCopy }

func (i copyIn) copy(ctx context.Context, from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return unreadableError("", from, err)
	}
	base, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	base = filepath.Base(base)
	if target, err := resolvePath(ctx, i.files, i.path(to)); strings.HasSuffix(to, "/") || to == "" || err == nil && target.Type == brig.Directory {
		to = path.Join(to, base)
	}
	if !st.IsDir() {
		return i.copyFile(ctx, from, to, st)
	}
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		dst := path.Join(to, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			if _, err := i.files.MakeDir(ctx, i.path(dst)); brig.KindOf(err) != brig.AlreadyExists {
				return err
			}
			return nil
		case !d.Type().IsRegular():
			i.c.reportSkipped(name)
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		return i.copyFile(ctx, name, dst, st)
	})
}

func (i copyIn) copyFile(ctx context.Context, from, to string, st fs.FileInfo) error {
	f, err := os.Open(from)
	if err != nil {
		return unreadableError("", from, err)
	}
	defer f.Close()
	_, err = i.files.Write(ctx, i.path(to), brig.FileWrite{Mode: uint32(st.Mode().Perm())}, f)
	return err
}

// resolvePath returns the entry at a path after following symbolic links.
func resolvePath(ctx context.Context, files brig.Files, p brig.Path) (*brig.Entry, error) {
	const maxLinks = 40 // the kernel's own limit
	for range maxLinks {
		e, err := files.Stat(ctx, p)
		if err != nil || e.Type != brig.Symlink {
			return e, err
		}
		p.Name = e.Target
	}
	return nil, brig.InvalidField("path", "too many symbolic links")
}

// reportSkipped reports that a file was not copied.
func (c *cli) reportSkipped(name string) {
	fmt.Fprintf(c.stderr, "brig: skipped %s: neither a file nor a directory\n", sanitizeCell(name))
}
