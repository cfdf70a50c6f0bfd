package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/brig-run/brig"
	"golang.org/x/sys/unix"
)

// publish moves the image in w to the store under the digest of m, and changes
// the index with point in the same step. If the store already has the digest,
// it keeps the existing image and the caller discards w.
func (s *Store) publish(ctx context.Context, w *scratch, m *meta, point func(*index)) (*brig.Image, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode image %s: %w", m.Digest, err)
	}
	from, to := filepath.Join(w.dir, "image"), s.imageDir(m.Digest)
	if err := os.WriteFile(filepath.Join(from, "meta.json"), b, 0o600); err != nil {
		return nil, fmt.Errorf("describe image %s: %w", m.Digest, err)
	}
	keep, err := s.reserve(ctx, m)
	if err != nil {
		return nil, err
	}
	defer keep()
	// A named image must be complete even after a power failure. Syncing the whole file system once
	// costs less than syncing each file.
	if err := s.opts.sync(from); err != nil {
		return nil, fmt.Errorf("write image %s to the disk: %w", m.Digest, err)
	}
	var img *brig.Image
	err = s.updateIndex(ctx, func(x *index) error {
		existing, err := s.readMeta(m.Digest)
		switch {
		case err == nil:
			m = existing
		case brig.KindOf(err) != brig.NotFound:
			return err
		default:
			if err := os.Rename(from, to); err != nil {
				return fmt.Errorf("keep image %s: %w", m.Digest, err)
			}
			if err := syncDir(s.dir); err != nil {
				return fmt.Errorf("keep image %s: %w", m.Digest, err)
			}
		}
		point(x)
		img = m.toImage(x)
		return nil
	})
	return img, err
}

// syncFS flushes the file system of dir to its disk.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return unix.Syncfs(int(d.Fd()))
}
