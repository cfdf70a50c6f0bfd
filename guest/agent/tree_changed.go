package agent

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// changed sends what was made or written since a moment, wherever it is looked
// for. When that was is what the sandbox's kernel says: programs may set the
// time of a file's content, and not that.
func changed(t wire.Tree, w *writer) error {
	root, err := os.OpenRoot("/")
	if err != nil {
		return pathError("/", err)
	}
	defer root.Close()
	p := &packer{w: w, maxFile: t.MaxFile, since: time.Unix(0, t.SinceNS), buf: make([]byte, 256<<10)}
	for _, at := range t.Paths {
		at = strings.TrimPrefix(path.Clean(at), "/")
		why, err := p.from(root, at)
		if err == nil && why != "" {
			err = p.skip(at, why)
		}
		if err != nil {
			return err
		}
	}
	p.flush()
	return nil
}

// from sends what is at a path and below it, or says why it does not. No link is
// followed on the way.
func (p *packer) from(root *os.Root, at string) (why string, err error) {
	dir, steps := root, strings.Split(at, "/")
	for _, name := range steps[:len(steps)-1] {
		next, err := step(dir, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "nothing is there", nil
		case err != nil:
			return "it is behind a link, or behind what is no directory", nil
		}
		defer next.Close()
		dir = next
	}
	name := steps[len(steps)-1]
	if _, err := dir.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return "nothing is there", nil
	}
	return "", p.one(dir, name, at, len(steps)-1)
}
