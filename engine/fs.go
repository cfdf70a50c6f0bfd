package engine

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// fileErrorWait is how long a failed file operation waits for its instance to be
// reported as ended, before the caller gets the error.
const fileErrorWait = 2 * time.Second

// files implements brig.Files for one sandbox, behind the gate.
type files struct {
	e    *programs
	name string
}

// Files implements brig.Service.
func (pg *programs) Files(name string) brig.Files { return files{pg, name} }

// withFiles makes the paths of a call absolute, checks them, and calls g.
func (f files) withFiles(ctx context.Context, op brig.Op, paths []brig.Path, g func(ctx context.Context, in brig.Files, at []brig.Path) error) error {
	note := func(v *call) {
		paths = v.absolutePaths(paths)
		v.addPaths(op, paths)
	}
	return f.e.lifecycle.withInstanceDetails(ctx, op, f.name, note, func(v *call, in brig.Instance) error {
		use := ctx
		if op == brig.OpWatch {
			release, err := f.e.streams.reserve(v)
			if err != nil {
				return err
			}
			defer release()
			watchCtx, done := f.e.endedByPause(ctx, v.rec.ID)
			defer done()
			use = watchCtx
		}
		for _, p := range paths {
			if err := v.checkPath(use, p); err != nil {
				return err
			}
		}
		err := g(use, in.Files(), paths)
		if brig.KindOf(err) == brig.Internal {
			// The instance may be about to end, because a kill ends the agent first. Wait until
			// the sandbox has the state ended, because the caller may check the state next.
			f.e.awaitEnd(use, in, fileErrorWait)
		}
		return err
	})
}

// absolutePaths returns absolute paths. It resolves relative paths against the directory in which
// the sandbox's commands start. The provider resolves "~", because the home directory depends on
// the user.
func (v *call) absolutePaths(paths []brig.Path) []brig.Path {
	dir := workspaceDir
	if v.rec != nil && v.rec.Spec.Dir != "" {
		dir = v.rec.Spec.Dir
	}
	out := slices.Clone(paths)
	for i, p := range out {
		if !path.IsAbs(p.Name) && !strings.HasPrefix(p.Name, "~") {
			out[i].Name = path.Join(dir, p.Name)
		}
	}
	return out
}

// addPaths records in the audit events of a call the paths that the call
// changes.
func (v *call) addPaths(op brig.Op, paths []brig.Path) {
	if !op.Changes || len(paths) == 0 {
		return
	}
	v.addDetail(brig.DetailPath, paths[0].Name)
	if last := len(paths) - 1; last > 0 {
		v.addDetail(brig.DetailTo, paths[last].Name)
	}
}

// checkPath checks the syntax of a path, and whether the caller may act as the path's user.
func (v *call) checkPath(ctx context.Context, p brig.Path) error {
	if strings.ContainsRune(p.Name, 0) || len(p.Name) > 4096 {
		return brig.InvalidField("path", "%q is not a path", truncate(p.Name)).WithHint("give up to 4096 bytes without NUL")
	}
	if err := checkUser("user", p.User); err != nil {
		return err
	}
	if brig.IsDefaultUser(p.User) || v.canExec() {
		return nil
	}
	err := brig.Errorf(brig.PermissionDenied, "file operations as root or another user need the right to run commands")
	err.Field = "user"
	if !v.op.Changes { // otherwise the outcome records the rejection
		v.appendRejection(ctx, err)
	}
	return err.WithHint("leave the user out, or use a key with the role %s and %s in its scopes", brig.OpExec.Role, brig.OpExec.Name)
}

// canExec reports whether the caller may run commands, which can run as root.
// Other callers must not obtain root access through files either.
func (v *call) canExec() bool {
	return v.actor.Role >= brig.OpExec.Role &&
		(brig.InScope(v.actor.Scopes, brig.OpExec.Name) || brig.InScope(v.actor.Scopes, brig.OpStart.Name))
}

func (f files) Stat(ctx context.Context, p brig.Path) (out *brig.Entry, err error) {
	err = f.withFiles(ctx, brig.OpStat, []brig.Path{p}, func(ctx context.Context, in brig.Files, at []brig.Path) error {
		out, err = in.Stat(ctx, at[0])
		return err
	})
	return out, err
}

func (f files) List(ctx context.Context, p brig.Path, depth int) (out []*brig.Entry, err error) {
	err = f.withFiles(ctx, brig.OpListDir, []brig.Path{p}, func(ctx context.Context, in brig.Files, at []brig.Path) error {
		out, err = in.List(ctx, at[0], max(depth, 1))
		return err
	})
	return out, err
}

func (f files) MakeDir(ctx context.Context, p brig.Path) (out *brig.Entry, err error) {
	err = f.withFiles(ctx, brig.OpMakeDir, []brig.Path{p}, func(ctx context.Context, in brig.Files, at []brig.Path) error {
		out, err = in.MakeDir(ctx, at[0])
		return err
	})
	return out, err
}

func (f files) Move(ctx context.Context, from, to brig.Path) (out *brig.Entry, err error) {
	err = f.withFiles(ctx, brig.OpMove, []brig.Path{from, to}, func(ctx context.Context, in brig.Files, at []brig.Path) error {
		out, err = in.Move(ctx, at[0], at[1])
		return err
	})
	return out, err
}

func (f files) Remove(ctx context.Context, p brig.Path) error {
	return f.withFiles(ctx, brig.OpUnlink, []brig.Path{p}, func(ctx context.Context, in brig.Files, at []brig.Path) error { return in.Remove(ctx, at[0]) })
}

func (f files) Read(ctx context.Context, p brig.Path, from, n int64) (e *brig.Entry, r io.ReadCloser, err error) {
	err = f.e.lifecycle.withInstance(ctx, brig.OpRead, f.name, func(v *call, in brig.Instance) error {
		p := v.absolutePaths([]brig.Path{p})[0]
		if err := v.checkPath(ctx, p); err != nil {
			return err
		}
		if from < 0 {
			return brig.InvalidField("offset", "%d is negative", from)
		}
		release, err := f.e.streams.reserve(v)
		if err != nil {
			return err
		}
		entry, body, err := in.Files().Read(ctx, p, from, n)
		if err != nil {
			release()
			return err
		}
		e, r = entry, streamReader{activeReader{body, v.takeRelease()}, release}
		return nil
	})
	return e, r, err
}

func (f files) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (out *brig.Entry, err error) {
	err = f.withFiles(ctx, brig.OpWrite, []brig.Path{p}, func(ctx context.Context, in brig.Files, at []brig.Path) error {
		if err := checkFileWrite(w); err != nil {
			return err
		}
		out, err = in.Write(ctx, at[0], w, r)
		return err
	})
	return out, err
}

// maxMetadata is the maximum size of a file's metadata, in bytes.
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
			return brig.InvalidField("metadata", "%q cannot be a file's metadata", truncate(k)).
				WithHint("keys are lower case and have 1 to 246 bytes; keys and values are printable ASCII")
		}
	}
	if size > maxMetadata {
		return brig.InvalidField("metadata", "%d bytes are too many", size).WithHint("give at most %s", brig.FormatBytes(maxMetadata))
	}
	return nil
}

func (f files) Compose(ctx context.Context, from []brig.Path, to brig.Path) (out *brig.Entry, err error) {
	err = f.withFiles(ctx, brig.OpCompose, append([]brig.Path{to}, from...), func(ctx context.Context, in brig.Files, at []brig.Path) error {
		if len(from) == 0 || len(from) > maxFiles {
			return brig.InvalidField("source_paths", "%d files cannot be composed", len(from)).WithHint("give 1 to %d", maxFiles)
		}
		out, err = in.Compose(ctx, at[1:], at[0])
		return err
	})
	return out, err
}

func (f files) Watch(ctx context.Context, p brig.Path, recursive bool, on func(brig.FileChange) error) error {
	return f.withFiles(ctx, brig.OpWatch, []brig.Path{p}, func(ctx context.Context, in brig.Files, at []brig.Path) error {
		return in.Watch(ctx, at[0], recursive, on)
	})
}
