package engine

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// lostTime is how long a machine in which something broke has to turn out to
// have ended, before it is told that something broke.
const lostTime = 2 * time.Second

// files is brig.Files of one sandbox, behind the gate.
type files struct {
	e    *Engine
	name string
}

// Files implements brig.Service.
func (e *Engine) Files(name string) brig.Files { return files{e, name} }

// do checks the paths of a call and does it.
func (f files) do(ctx context.Context, op brig.Op, paths []brig.Path, g func(brig.Files) error) error {
	return f.e.inside(ctx, op, f.name, func(_ *visit, in brig.Instance) error {
		for _, p := range paths {
			if err := checkPath(p); err != nil {
				return err
			}
		}
		err := g(in.Files())
		if brig.KindOf(err) == brig.Internal {
			// Perhaps its machine dies: whoever kills a sandbox ends its agent
			// first. Who is told so then finds it dead.
			f.e.awaitEnd(ctx, in, lostTime)
		}
		return err
	}, func(v *visit) { v.sayPaths(op, paths) })
}

// sayPaths says which files a call changes.
func (v *visit) sayPaths(op brig.Op, paths []brig.Path) {
	if !op.Changes || len(paths) == 0 {
		return
	}
	v.say(brig.DetailPath, paths[0].Name)
	if last := len(paths) - 1; last > 0 {
		v.say(brig.DetailTo, paths[last].Name)
	}
}

func checkPath(p brig.Path) error {
	if strings.ContainsRune(p.Name, 0) || len(p.Name) > 4096 {
		return brig.InvalidField("path", "%q is not a path", clip(p.Name)).WithHint("give up to 4096 bytes without NUL")
	}
	return checkUser("user", p.User)
}

func (f files) Stat(ctx context.Context, p brig.Path) (out *brig.Entry, err error) {
	err = f.do(ctx, brig.OpStat, []brig.Path{p}, func(in brig.Files) error { out, err = in.Stat(ctx, p); return err })
	return out, err
}

func (f files) List(ctx context.Context, p brig.Path, depth int) (out []*brig.Entry, err error) {
	err = f.do(ctx, brig.OpListDir, []brig.Path{p}, func(in brig.Files) error {
		out, err = in.List(ctx, p, max(depth, 1))
		return err
	})
	return out, err
}

func (f files) MakeDir(ctx context.Context, p brig.Path) (out *brig.Entry, err error) {
	err = f.do(ctx, brig.OpMakeDir, []brig.Path{p}, func(in brig.Files) error { out, err = in.MakeDir(ctx, p); return err })
	return out, err
}

func (f files) Move(ctx context.Context, from, to brig.Path) (out *brig.Entry, err error) {
	err = f.do(ctx, brig.OpMove, []brig.Path{from, to}, func(in brig.Files) error {
		out, err = in.Move(ctx, from, to)
		return err
	})
	return out, err
}

func (f files) Remove(ctx context.Context, p brig.Path) error {
	return f.do(ctx, brig.OpUnlink, []brig.Path{p}, func(in brig.Files) error { return in.Remove(ctx, p) })
}

func (f files) Read(ctx context.Context, p brig.Path, from, n int64) (e *brig.Entry, r io.ReadCloser, err error) {
	err = f.e.inside(ctx, brig.OpRead, f.name, func(v *visit, in brig.Instance) error {
		if err := checkPath(p); err != nil {
			return err
		}
		if from < 0 {
			return brig.InvalidField("offset", "%d is negative", from)
		}
		entry, body, err := in.Files().Read(ctx, p, from, n)
		if err != nil {
			return err
		}
		e, r = entry, heldReader{body, v.takeRest()}
		return nil
	})
	return e, r, err
}

func (f files) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (out *brig.Entry, err error) {
	err = f.do(ctx, brig.OpWrite, []brig.Path{p}, func(in brig.Files) error {
		if err := checkFileWrite(w); err != nil {
			return err
		}
		out, err = in.Write(ctx, p, w, r)
		return err
	})
	return out, err
}

// maxMetadata is how large a file's metadata may be, in bytes.
const maxMetadata = 4096

func checkFileWrite(w brig.FileWrite) error {
	if w.Mode > 0o777 {
		return brig.InvalidField("mode", "%o is not a file's mode", w.Mode).WithHint("give permission bits, for example 0644 (420)")
	}
	size := 0
	for k, v := range w.Metadata {
		size += len(k) + len(v)
		outside := func(c rune) bool { return c < ' ' || c > '~' }
		if k == "" || len(k) > 246 || k != strings.ToLower(k) || strings.IndexFunc(k+v, outside) >= 0 {
			return brig.InvalidField("metadata", "%q cannot be a file's metadata", clip(k)).
				WithHint("keys are lower case and have 1 to 246 bytes; keys and values are printable ASCII")
		}
	}
	if size > maxMetadata {
		return brig.InvalidField("metadata", "%d bytes are too many", size).WithHint("give at most %s", brig.FormatBytes(maxMetadata))
	}
	return nil
}

func (f files) Compose(ctx context.Context, from []brig.Path, to brig.Path) (out *brig.Entry, err error) {
	err = f.do(ctx, brig.OpCompose, append([]brig.Path{to}, from...), func(in brig.Files) error {
		if len(from) == 0 || len(from) > maxFiles {
			return brig.InvalidField("source_paths", "%d files cannot be composed", len(from)).WithHint("give 1 to %d", maxFiles)
		}
		out, err = in.Compose(ctx, from, to)
		return err
	})
	return out, err
}

func (f files) Watch(ctx context.Context, p brig.Path, recursive bool, on func(brig.FileChange) error) error {
	return f.do(ctx, brig.OpWatch, []brig.Path{p}, func(in brig.Files) error { return in.Watch(ctx, p, recursive, on) })
}
