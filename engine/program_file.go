package engine

import (
	"context"
	"io"
	"path"
	"regexp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// programFile is the file that a driver has written for a program, so that the
// program finds itself under its own name. Workspaces do not keep it.
type programFile struct {
	path string // empty if there is none
	code string
}

// programName matches the names of such files.
var programName = regexp.MustCompile(`^main(-[1-9])?\.(py|js|cjs|mjs|sh)$`)

// note takes the path from a driver's message. The guest may claim any path, but
// the file must be one that a driver could have written.
func (f *programFile) note(m *interpreter.Message, code string) {
	if m.Type == "file" && path.Dir(m.Path) == workspaceDir && programName.MatchString(path.Base(m.Path)) {
		*f = programFile{path: m.Path, code: code}
	}
}

// remove removes the file from the workspace, unless the program has changed it:
// then it is a result of the program. The instance's programs have ended. A file
// that cannot be read or removed was changed, too, and is kept.
func (f *programFile) remove(ctx context.Context, in brig.Instance, user string) {
	if f.path == "" {
		return
	}
	at := brig.Path{Name: f.path, User: user}
	_, r, err := in.Files().Read(ctx, at, 0, int64(len(f.code))+1)
	if err != nil {
		return
	}
	defer r.Close()
	if held, err := io.ReadAll(r); err == nil && string(held) == f.code {
		_ = in.Files().Remove(ctx, at)
	}
}
