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

func (c *cli) sandboxCopy() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files into it or out of it; NAME:PATH is inside",
		Long: `Copy a file, or a directory with all that is below it, into a sandbox or out of
one. Of the two, one is NAME:PATH and the other a path here; write ./a:b for a path
here that has a colon. Copying to a directory that is there copies into it. Links
and devices below a directory are left out.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromInside := insideOf(args[0])
			to, toInside := insideOf(args[1])
			if fromInside == toInside {
				return brig.Errorf(brig.InvalidArgument, "one of the two must be in a sandbox, and the other here").
					WithHint("for example: brig sandbox cp NAME:/workspace/a .")
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if toInside {
					in := copyIn{copying{c, svc.Files(to.name), user}}
					return in.copy(ctx, args[0], to.path)
				}
				out := copyOut{copying{c, svc.Files(from.name), user}}
				return out.copy(ctx, from.path, args[1])
			})
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "who owns what is made inside: user (default) or root")
	return cmd
}

// insidePath is a path in a sandbox.
type insidePath struct{ name, path string }

// insideOf reads NAME:PATH, if s is that.
func insideOf(s string) (insidePath, bool) {
	name, p, ok := strings.Cut(s, ":")
	if !ok || name == "" || strings.ContainsAny(name, "/.") {
		return insidePath{}, false
	}
	return insidePath{name, p}, true
}

// copying is a copy under way, with the files of the sandbox.
type copying struct {
	c     *cli
	files brig.Files
	user  string
}

func (c copying) at(p string) brig.Path { return brig.Path{Name: p, User: c.user} }

// copyIn copies into a sandbox.
type copyIn struct{ copying }

func (i copyIn) copy(ctx context.Context, from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return brig.InvalidField("SRC", "%s cannot be read", from).Because(err)
	}
	base, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	base = filepath.Base(base)
	if there, err := resolved(ctx, i.files, i.at(to)); strings.HasSuffix(to, "/") || to == "" || err == nil && there.Type == brig.Directory {
		to = path.Join(to, base)
	}
	if !st.IsDir() {
		return i.file(ctx, from, to, st)
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
			if _, err := i.files.MakeDir(ctx, i.at(dst)); brig.KindOf(err) != brig.AlreadyExists {
				return err
			}
			return nil
		case !d.Type().IsRegular():
			i.c.leftOut(name)
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		return i.file(ctx, name, dst, st)
	})
}

func (i copyIn) file(ctx context.Context, from, to string, st fs.FileInfo) error {
	f, err := os.Open(from)
	if err != nil {
		return brig.InvalidField("SRC", "%s cannot be read", from).Because(err)
	}
	defer f.Close()
	_, err = i.files.Write(ctx, i.at(to), brig.FileWrite{Mode: uint32(st.Mode().Perm())}, f)
	return err
}

// resolved says what is at a path, following links.
func resolved(ctx context.Context, files brig.Files, p brig.Path) (*brig.Entry, error) {
	const most = 40 // as many as the kernel follows
	for range most {
		e, err := files.Stat(ctx, p)
		if err != nil || e.Type != brig.Symlink {
			return e, err
		}
		p.Name = e.Target
	}
	return nil, brig.InvalidField("path", "has too many links")
}

// leftOut says that something is not copied.
func (c *cli) leftOut(name string) {
	fmt.Fprintf(c.stderr, "brig: left out %s: neither a file nor a directory\n", cell(name))
}
