package agent

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// packer sends a tree. What changes under it is sent as it was read; what goes
// away is not there.
type packer struct {
	w       *writer
	maxFile int64
	since   time.Time // what is older is not sent, but for directories
	batch   bytes.Buffer
	buf     []byte
}

// pack sends all that is below a directory.
func pack(t wire.Tree, w *writer) error {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return pathError(t.Dir, err)
	}
	defer root.Close()
	p := &packer{w: w, maxFile: t.MaxFile, buf: make([]byte, 256<<10)}
	if err := p.walk(root, "", 0); err != nil {
		return err
	}
	p.flush()
	return nil
}

func (p *packer) flush() {
	p.w.raw(p.batch.Bytes())
	p.batch.Reset()
}

// node puts a node into the batch.
func (p *packer) node(n wire.Node) error {
	if err := wire.WriteJSON(&p.batch, wire.TypeNode, n); err != nil {
		return err
	}
	if p.batch.Len() >= batched {
		p.flush()
	}
	return nil
}

// skip says that something does not come along.
func (p *packer) skip(at, why string) error {
	if len(at) > wire.MaxNodePath {
		at = at[:wire.MaxNodePath]
	}
	return p.node(wire.Node{Path: []byte(at), Skipped: why})
}

func (p *packer) walk(dir *os.Root, at string, depth int) error {
	d, err := dir.Open(".")
	if err != nil {
		return p.skip(at, "it cannot be read")
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return p.skip(at, "it cannot be read")
	}
	slices.Sort(names)
	for _, name := range names {
		if p.w.gone() {
			return nil
		}
		if err := p.one(dir, name, path.Join(at, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// one sends what has a name in a directory.
func (p *packer) one(dir *os.Root, name, at string, depth int) error {
	st, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return p.skip(at, "it cannot be read")
	case len(at) > wire.MaxNodePath:
		return p.skip(at, "its path is too long")
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && !st.IsDir() && time.Unix(sys.Ctim.Unix()).Before(p.since) {
		return nil
	}
	n := wire.Node{Path: []byte(at), Mode: uint32(st.Mode().Perm())}
	switch m := st.Mode(); {
	case m.IsRegular():
		return p.file(dir, name, n)
	case m.IsDir():
		if depth == wire.MaxNodeDepth {
			return p.skip(at, "it is too deep")
		}
		next, err := step(dir, name)
		if err != nil {
			return p.skip(at, "it cannot be opened")
		}
		defer next.Close()
		n.Type = "directory"
		if err := p.node(n); err != nil {
			return err
		}
		return p.walk(next, at, depth+1)
	case m&fs.ModeSymlink != 0:
		to, err := dir.Readlink(name)
		if err != nil || len(to) > wire.MaxNodePath {
			return p.skip(at, "the link cannot be read")
		}
		n.Type, n.Target = "symlink", []byte(to)
		return p.node(n)
	case m&fs.ModeNamedPipe != 0:
		return p.skip(at, "it is a pipe")
	case m&fs.ModeSocket != 0:
		return p.skip(at, "it is a socket")
	default:
		return p.skip(at, "it is a device")
	}
}

// file sends a regular file, as much of it as there is when it is read.
func (p *packer) file(dir *os.Root, name string, n wire.Node) error {
	at := string(n.Path)
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return p.skip(at, "it cannot be opened")
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return p.skip(at, "it changed its type")
	}
	if st.Size() > p.maxFile {
		return p.skip(at, "it is too large")
	}
	n.Type, n.Mode, n.Size, n.ModifiedNS = "file", uint32(st.Mode().Perm()), st.Size(), st.ModTime().UnixNano()
	if err := p.node(n); err != nil {
		return err
	}
	for left := p.maxFile; left > 0 && !p.w.gone(); {
		got, err := f.Read(p.buf[:min(left, int64(len(p.buf)))])
		if left -= int64(got); got > 0 {
			if err := wire.Write(&p.batch, wire.TypeFileData, p.buf[:got]); err != nil {
				return err
			}
			if p.batch.Len() >= batched {
				p.flush()
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return pathError(at, err)
		}
	}
	return wire.Write(&p.batch, wire.TypeNodeEnd, nil)
}
