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
	"github.com/brig-run/brig/internal/nofollow"
)

// packer sends a tree. A file that changes during the transfer is sent as it
// was read, and a file that is removed is omitted.
type packer struct {
	w       *writer
	maxFile int64
	since   time.Time // older files are omitted, except directories
	batch   bytes.Buffer
	buf     []byte
}

// sendTree sends the tree below a directory.
func sendTree(t wire.Tree, w *writer) error {
	root, err := nofollow.Open(t.Dir)
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
	p.w.writeFrame(p.batch.Bytes())
	p.batch.Reset()
}

// sendNode adds a node to the batch.
func (p *packer) sendNode(n wire.Node) error {
	if err := wire.WriteJSON(&p.batch, wire.TypeNode, n); err != nil {
		return err
	}
	if p.batch.Len() >= batchSize {
		p.flush()
	}
	return nil
}

// skip reports that a file is omitted, and why.
func (p *packer) skip(at, reason string) error {
	if len(at) > wire.MaxNodePath {
		at = at[:wire.MaxNodePath]
	}
	return p.sendNode(wire.Node{Path: []byte(at), Skipped: reason})
}

func (p *packer) walk(dir *nofollow.Dir, at string, depth int) error {
	names, err := dir.Names(-1)
	if err != nil {
		return p.skip(at, "it cannot be read")
	}
	slices.Sort(names)
	for _, name := range names {
		if p.w.isHostGone() {
			return nil
		}
		if err := p.sendEntry(dir, name, path.Join(at, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// sendEntry sends the file or directory tree with this name in a directory.
func (p *packer) sendEntry(dir *nofollow.Dir, name, at string, depth int) error {
	st, err := dir.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return p.skip(at, "it cannot be read")
	case len(at) > wire.MaxNodePath:
		return p.skip(at, "its path is too long")
	}
	if !st.IsDir() && time.Unix(st.Ctim.Unix()).Before(p.since) {
		return nil
	}
	n := wire.Node{Path: []byte(at), Mode: st.Mode & 0o777}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return p.sendFile(dir, name, n)
	case syscall.S_IFDIR:
		if depth == wire.MaxNodeDepth {
			return p.skip(at, "it is too deep")
		}
		next, err := dir.Dir(name)
		if err != nil {
			return p.skip(at, "it cannot be opened")
		}
		defer next.Close()
		n.Type = "directory"
		if err := p.sendNode(n); err != nil {
			return err
		}
		return p.walk(next, at, depth+1)
	case syscall.S_IFLNK:
		to, err := dir.Readlink(name)
		if err != nil || len(to) > wire.MaxNodePath {
			return p.skip(at, "the link cannot be read")
		}
		n.Type, n.Target = "symlink", []byte(to)
		return p.sendNode(n)
	case syscall.S_IFIFO:
		return p.skip(at, "it is a pipe")
	case syscall.S_IFSOCK:
		return p.skip(at, "it is a socket")
	default:
		return p.skip(at, "it is a device")
	}
}

// sendFile sends a regular file with its content at the time of the read.
func (p *packer) sendFile(dir *nofollow.Dir, name string, n wire.Node) error {
	at := string(n.Path)
	f, err := dir.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return p.skip(at, "it cannot be opened")
	}
	defer f.Close()
	st, err := statOpen(f)
	if err != nil || !st.IsRegular() {
		return p.skip(at, "it changed its type")
	}
	if isOfProcess(f) {
		return p.skip(at, "it belongs to a process")
	}
	if st.Size > p.maxFile {
		return p.skip(at, "it is too large")
	}
	n.Type, n.Mode, n.Size, n.ModifiedNS = "file", st.Mode&0o777, st.Size, st.Mtim.Nano()
	if err := p.sendNode(n); err != nil {
		return err
	}
	for remaining := p.maxFile; remaining > 0 && !p.w.isHostGone(); {
		got, err := f.Read(p.buf[:min(remaining, int64(len(p.buf)))])
		if remaining -= int64(got); got > 0 {
			if err := wire.Write(&p.batch, wire.TypeFileData, p.buf[:got]); err != nil {
				return err
			}
			if p.batch.Len() >= batchSize {
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
