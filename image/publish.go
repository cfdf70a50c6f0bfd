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

// publish makes the image in w one of the store's, under the digest of m, and
// lets point change the index in the same step. When the store has the digest
// already, that image stays and w's is left to be discarded.
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
	// An image that has its name must be whole even after a power cut, and
	// one sync of the file system costs less than one of every file.
	if err := s.opts.sync(from); err != nil {
		return nil, fmt.Errorf("write image %s to the disk: %w", m.Digest, err)
	}
	var img *brig.Image
	err = s.change(ctx, func(x *index) error {
		there, err := s.readMeta(m.Digest)
		switch {
		case err == nil:
			m = there
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
		img = m.image(x)
		return nil
	})
	return img, err
}

// syncFS writes everything that the file system of dir holds back to its disk.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return unix.Syncfs(int(d.Fd()))
}
