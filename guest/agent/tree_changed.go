package agent

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// sendChanged sends the files at the given paths that were created or written
// since a given time. It compares the change time of the inode, because
// programs can set the modification time of a file, but not its change time.
func sendChanged(t wire.Tree, w *writer) error {
	root, err := nofollow.Open("/")
	if err != nil {
		return pathError("/", err)
	}
	defer root.Close()
	p := &packer{w: w, maxFile: t.MaxFile, since: time.Unix(0, t.SinceNS), buf: make([]byte, 256<<10)}
	for _, name := range t.Paths {
		name = strings.TrimPrefix(path.Clean(name), "/")
		reason, err := p.sendPath(root, name)
		if err == nil && reason != "" {
			err = p.skip(name, reason)
		}
		if err != nil {
			return err
		}
	}
	p.flush()
	return nil
}

// sendPath sends the file or tree at a path, or returns the reason why it
// cannot. It does not follow links in the path.
func (p *packer) sendPath(root *nofollow.Dir, at string) (reason string, err error) {
	dir, steps := root, strings.Split(at, "/")
	for _, name := range steps[:len(steps)-1] {
		next, err := dir.Dir(name)
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
	if _, err := dir.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return "nothing is there", nil
	}
	return "", p.sendEntry(dir, name, at, len(steps)-1)
}
