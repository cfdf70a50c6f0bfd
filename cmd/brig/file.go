package main

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// list lists a directory of a sandbox.
func (c fileCommands) list(cmd *cobra.Command, args []string, depth int) error {
	dir := brig.Path{Name: "/workspace"}
	if len(args) > 1 {
		dir.Name = args[1]
	}
	return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
		all, err := svc.Files(args[0]).List(ctx, dir, depth)
		if err != nil {
			return err
		}
		return list(c.cli, all, "MODE\tOWNER\tGROUP\tSIZE\tMODIFIED\tPATH", func(e *brig.Entry) []string {
			name := e.Path
			if e.Target != "" {
				name += " -> " + e.Target
			}
			return []string{modeOf(e), e.Owner, e.Group, fmt.Sprint(e.Size), e.Modified.UTC().Format(time.DateTime), name}
		})
	})
}

// modeOf formats a type and permission bits as ls does.
func modeOf(e *brig.Entry) string {
	mode := fs.FileMode(e.Mode & 0o777)
	switch e.Type {
	case brig.Directory:
		mode |= fs.ModeDir
	case brig.Symlink:
		mode |= fs.ModeSymlink
	case brig.OtherFile:
		mode |= fs.ModeIrregular
	}
	return mode.String()
}
