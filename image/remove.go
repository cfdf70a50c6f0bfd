package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/brig-run/brig"
)

// Remove implements brig.ImageStore. By a name it removes the name, and the
// files with the last one; by a digest it removes the files and every name.
func (s *Store) Remove(ctx context.Context, ref string) error {
	if ref == brig.HostImage {
		return inUse()
	}
	if err := checkRef(ref); err != nil {
		return err
	}
	w, err := s.newScratch()
	if err != nil {
		return err
	}
	defer w.discard() // and with it the files, when nobody waits for the lock any more
	return s.change(ctx, func(x *index) error {
		digest := x.find(ref)
		if digest == "" {
			return unknown(ref)
		}
		if name := x.nameOf(ref); name != "" {
			delete(x.Names, name)
			if len(x.namesOf(digest)) > 0 || digest == x.Host.Digest {
				return nil
			}
		}
		if digest == x.Host.Digest {
			return inUse()
		}
		// The files go before their names: a name without files is no image,
		// but files that nobody knows of would stay for ever.
		err := os.Rename(s.imageDir(digest), filepath.Join(w.dir, "trash"))
		if errors.Is(err, fs.ErrNotExist) && isDigest(ref) && len(x.namesOf(digest)) == 0 {
			return unknown(ref)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove image %s: %w", digest, err)
		}
		for _, name := range x.namesOf(digest) {
			delete(x.Names, name)
		}
		maps.DeleteFunc(x.Manifests, func(_, d string) bool { return d == digest })
		return nil
	})
}

func inUse() error {
	return brig.Errorf(brig.FailedPrecondition, "the image %q is this machine's own and stays", brig.HostImage)
}
