package tool

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Shelf keeps layers in a folder, each as a compressed tar archive under its
// digest. Several processes may share one.
type Shelf struct {
	Dir string
	// Most is how many bytes of layers are kept: those that were not used for
	// the longest time go first. 0 is no bound.
	Most int64
	// Largest is how many bytes the files of one layer may have.
	Largest int64
}

// ErrTooLarge says that a layer has more than the shelf takes.
var ErrTooLarge = errors.New("the packages take too much")

// The names of layers end so, and those of what becomes one begin so.
const (
	ending = ".tar.gz"
	begun  = "new-"
)

// abandoned is after how long nobody writes any more what becomes a layer.
const abandoned = time.Hour

// Sweep removes what processes that died have begun and nobody will end.
func (s *Shelf) Sweep() {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return // there is no shelf yet
	}
	for _, e := range entries {
		if i, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), begun) && time.Since(i.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(s.Dir, e.Name())) // the next one does
		}
	}
}

func (s *Shelf) path(digest string) string { return filepath.Join(s.Dir, digest+ending) }

// Put keeps a layer, of which pack gives all nodes, parents first. It is there
// when Put returns, whole, or not at all.
func (s *Shelf) Put(digest string, pack func(on func(brig.Node, io.Reader) error) error) (err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	s.Sweep()
	f, err := os.CreateTemp(s.Dir, begun+"*")
	if err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), s.path(digest))
		}
		if err != nil {
			_ = os.Remove(f.Name()) // it may be there no more
			return
		}
		s.makeRoom(digest)
	}()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	t := tar.NewWriter(z)
	left := s.Largest
	err = pack(func(n brig.Node, r io.Reader) error { return put(t, n, r, &left) })
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	return f.Sync()
}

func put(t *tar.Writer, n brig.Node, r io.Reader, left *int64) error {
	if n.Skipped != "" {
		return nil
	}
	h := &tar.Header{Format: tar.FormatPAX, Name: n.Path, Mode: int64(n.Mode & 0o777), ModTime: n.Modified}
	switch n.Type {
	case brig.Directory:
		h.Typeflag, h.Name = tar.TypeDir, n.Path+"/"
	case brig.Symlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.Target
	default:
		h.Typeflag, h.Size = tar.TypeReg, n.Size
		if *left -= n.Size; *left < 0 {
			return ErrTooLarge
		}
	}
	// Entries cost as well.
	if *left -= 512; *left < 0 {
		return ErrTooLarge
	}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("write %.200q: %w", n.Path, err)
	}
	if h.Typeflag != tar.TypeReg || r == nil {
		return nil
	}
	if _, err := io.Copy(t, r); err != nil {
		return fmt.Errorf("write %.200q: %w", n.Path, err)
	}
	return nil
}

// Content is a layer of a shelf. It can be read although the shelf needs its
// room, until it is closed.
type Content struct{ f *os.File }

// Open returns a layer, and notes that it is used. fs.ErrNotExist says that
// there is none.
func (s *Shelf) Open(digest string) (*Content, error) {
	f, err := os.Open(s.path(digest))
	if err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now) // it may be gone from the shelf
	return &Content{f}, nil
}

// Close ends the use of a layer.
func (c *Content) Close() error { return c.f.Close() }

// Each gives all nodes of a layer to put, parents first.
func (c *Content) Each(put func(brig.Node, io.Reader) error) error {
	if _, err := c.f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	z, err := gzip.NewReader(c.f)
	if err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read layer: %w", err)
		}
		n := brig.Node{Path: strings.TrimSuffix(h.Name, "/"), Mode: uint32(h.Mode & 0o777), Size: h.Size, Modified: h.ModTime, Target: h.Linkname}
		var content io.Reader
		switch h.Typeflag {
		case tar.TypeDir:
			n.Type = brig.Directory
		case tar.TypeSymlink:
			n.Type = brig.Symlink
		case tar.TypeReg:
			n.Type, content = brig.RegularFile, t
		default:
			continue // Put writes none
		}
		if err := put(n, content); err != nil {
			return err
		}
	}
}

// makeRoom removes what was not used for the longest time, but never keep.
func (s *Shelf) makeRoom(keep string) {
	if s.Most == 0 {
		return
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return // the next layer makes room
	}
	var all []fs.FileInfo
	total := int64(0)
	for _, e := range entries {
		if i, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ending) {
			all, total = append(all, i), total+i.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, i := range all {
		if total <= s.Most {
			return
		}
		if i.Name() != keep+ending && os.Remove(filepath.Join(s.Dir, i.Name())) == nil {
			total -= i.Size()
		}
	}
}
