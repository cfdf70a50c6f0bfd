package engine

import (
	"context"
	"io"
	"path"
	"regexp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// programFile is the file that a driver has written for a program, so that the program can refer to
// its own source file. Workspaces do not keep this file.
type programFile struct {
	path string // empty if there is none
	code string
}

// programName matches the names of program files.
var programName = regexp.MustCompile(`^main(-[1-9])?\.(py|js|cjs|mjs|sh)$`)

// setPath takes the path from a driver's message. The guest may claim any path, but
// the file must be one that a driver could have written.
func (f *programFile) setPath(m *interpreter.Message, code string) {
	if m.Type == "file" && path.Dir(m.Path) == workspaceDir && programName.MatchString(path.Base(m.Path)) {
		*f = programFile{path: m.Path, code: code}
	}
}

// remove removes the file from the workspace, unless the program has changed it and thereby made it
// a result. A file that cannot be read or removed counts as changed. The instance's programs must
// have ended.
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
	if got, err := io.ReadAll(r); err == nil && string(got) == f.code {
		_ = in.Files().Remove(ctx, at)
	}
}
