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

// Remove implements brig.ImageStore. Given a name, it removes the name, and the
// files if it was the last name. Given a digest, it removes the files and all
// names. The files are deleted in the background, since that can take a minute.
func (s *Store) Remove(ctx context.Context, ref string) error {
	if ref == brig.HostImage {
		return inUseError()
	}
	if err := checkRef(ref); err != nil {
		return err
	}
	w, err := s.newScratch()
	if err != nil {
		return err
	}
	defer s.removals.Go(w.discard)
	return s.updateIndex(ctx, func(x *index) error {
		if alias, target := x.aliasOf(ref); target != "" {
			delete(x.Aliases, alias)
			return nil
		}
		digest := x.find(ref)
		if digest == "" {
			return unknownImageError(ref)
		}
		if name := x.nameOf(ref); name != "" {
			delete(x.Names, name)
			if x.hasName(digest) || digest == x.Host.Digest {
				return nil
			}
		}
		if digest == x.Host.Digest {
			return inUseError()
		}
		// Remove the files before their names: a name without files is ignored,
		// but files without a name would persist forever.
		err := os.Rename(s.imageDir(digest), filepath.Join(w.dir, "trash"))
		if errors.Is(err, fs.ErrNotExist) && isDigest(ref) && !x.hasName(digest) {
			return unknownImageError(ref)
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

func inUseError() error {
	return brig.Errorf(brig.FailedPrecondition, "the image %q is the machine's own and cannot be removed", brig.HostImage)
}
