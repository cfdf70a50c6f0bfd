package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
)

// copyOut copies files out of a sandbox. It does not trust the file names in
// the sandbox, and never writes outside the user's destination.
type copyOut struct{ fileCopy }

func (o copyOut) copy(ctx context.Context, from, to string) error {
	e, err := resolvePath(ctx, o.files, o.path(from))
	if err != nil {
		return err
	}
	if st, err := os.Stat(to); strings.HasSuffix(to, "/") || err == nil && st.IsDir() {
		base := path.Base(path.Clean("/" + from)) // Clean removes ".." from the user's path
		if to = filepath.Join(to, base); base == "/" {
			to = filepath.Dir(to)
		}
	}
	if e.Type == brig.Directory {
		return o.copyDirectory(ctx, e, to)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return errUnwritable(to, err)
	}
	return o.copyFile(ctx, e.Path, to, os.OpenFile, os.Remove)
}

// copyDirectory copies the files below a directory.
func (o copyOut) copyDirectory(ctx context.Context, dir *brig.Entry, to string) error {
	all, err := o.files.List(ctx, o.path(dir.Path), math.MaxInt32)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return errUnwritable(to, err)
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return errUnwritable(to, err)
	}
	defer root.Close()
	above := strings.TrimSuffix(dir.Path, "/") + "/"
	for _, e := range all {
		name, below := strings.CutPrefix(e.Path, above)
		if !below || !filepath.IsLocal(name) {
			return brig.Errorf(brig.FailedPrecondition, "the sandbox names a file that is not below %s", sanitizeText(dir.Path))
		}
		switch e.Type {
		case brig.Directory:
			if err := root.MkdirAll(name, 0o755); err != nil {
				return errUnwritable(name, err)
			}
		case brig.RegularFile:
			if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return errUnwritable(name, err)
			}
			if err := o.copyFile(ctx, e.Path, name, root.OpenFile, root.Remove); err != nil {
				return err
			}
		default:
			o.c.reportSkipped(e.Path)
		}
	}
	return nil
}

// copyFile copies one file. If the copy fails, file removes the partial copy, because the user
// could mistake it for a complete one.
func (o copyOut) copyFile(
	ctx context.Context, from, to string,
	open func(string, int, fs.FileMode) (*os.File, error), remove func(string) error,
) error {
	e, r, err := o.files.Read(ctx, o.path(from), 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := open(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fs.FileMode(e.Mode&0o777))
	if err != nil {
		return errUnwritable(to, err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		return nil
	}
	if st, serr := os.Lstat(f.Name()); serr == nil && st.Mode().IsRegular() {
		err = errors.Join(err, remove(to))
	}
	return err
}

func errUnwritable(name string, err error) error {
	return unwritableError("", name, err)
}
