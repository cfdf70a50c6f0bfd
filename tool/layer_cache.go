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

// LayerCache stores layers in a directory, each as a compressed tar archive named by its digest.
// Several processes may share a cache.
type LayerCache struct {
	Dir string
	// MaxBytes is the maximum total size of all layers. The cache removes the least
	// recently used layers first. 0 means no limit.
	MaxBytes int64
	// MaxLayer is the maximum total size of the files of one layer.
	MaxLayer int64
}

// ErrTooLarge means that a layer exceeds the limit of the cache.
var ErrTooLarge = errors.New("the packages take too much")

// The suffix of the file names of layers, and the prefix of the names of unfinished
// files.
const (
	layerSuffix = ".tar.gz"
	tempPrefix  = "new-"
)

// maxUnfinishedAge is the age at which an unfinished file counts as abandoned.
const maxUnfinishedAge = time.Hour

// Sweep removes unfinished files of processes that died.
func (s *LayerCache) Sweep() {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return // the cache does not exist yet
	}
	for _, e := range entries {
		if i, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), tempPrefix) && time.Since(i.ModTime()) > maxUnfinishedAge {
			_ = os.Remove(filepath.Join(s.Dir, e.Name())) // after an error, the next sweep tries again
		}
	}
}

func (s *LayerCache) path(digest string) string { return filepath.Join(s.Dir, digest+layerSuffix) }

// Put stores a layer. The function pack passes all nodes to its argument, parents
// first. After an error, Put leaves no files.
func (s *LayerCache) Put(digest string, pack func(on func(brig.Node, io.Reader) error) error) (err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	s.Sweep()
	f, err := os.CreateTemp(s.Dir, tempPrefix+"*")
	if err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), s.path(digest))
		}
		if err != nil {
			_ = os.Remove(f.Name()) // it may have been renamed
			return
		}
		s.evictToFit(digest)
	}()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	t := tar.NewWriter(z)
	remaining := s.MaxLayer
	err = pack(func(n brig.Node, r io.Reader) error { return writeEntry(t, n, r, &remaining) })
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return fmt.Errorf("keep layer: %w", err)
	}
	return f.Sync()
}

func writeEntry(t *tar.Writer, n brig.Node, r io.Reader, remaining *int64) error {
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
		if *remaining -= n.Size; *remaining < 0 {
			return ErrTooLarge
		}
	}
	// The header of each entry counts, too.
	if *remaining -= 512; *remaining < 0 {
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

// Content is an open layer. It remains readable until Close, even after the
// cache has removed it.
type Content struct{ f *os.File }

// Open opens a layer and records its use. It returns fs.ErrNotExist if the
// layer does not exist.
func (s *LayerCache) Open(digest string) (*Content, error) {
	f, err := os.Open(s.path(digest))
	if err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now) // fails if the cache has removed the layer
	return &Content{f}, nil
}

// Close closes the layer.
func (c *Content) Close() error { return c.f.Close() }

// Each calls put for all nodes of a layer, parents first.
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
			continue // Put writes no other types
		}
		if err := put(n, content); err != nil {
			return err
		}
	}
}

// evictToFit removes the least recently used layers that exceed MaxBytes, but never
// the layer keep.
func (s *LayerCache) evictToFit(keep string) {
	if s.MaxBytes == 0 {
		return
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return // the next Put tries again
	}
	var all []fs.FileInfo
	total := int64(0)
	for _, e := range entries {
		if i, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), layerSuffix) {
			all, total = append(all, i), total+i.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, i := range all {
		if total <= s.MaxBytes {
			return
		}
		if i.Name() != keep+layerSuffix && os.Remove(filepath.Join(s.Dir, i.Name())) == nil {
			total -= i.Size()
		}
	}
}
