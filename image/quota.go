package image

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// quotaState is the state with which the store enforces its quota.
type quotaState struct {
	making sync.Mutex // held from the reservation until the image is published

	mu      sync.Mutex           // guards the fields below
	users   brig.ImageUsers      // nil: the store evicts no image
	touched map[string]time.Time // the time of the last recorded use
}

// EvictFor implements brig.ImageEvictor.
func (s *Store) EvictFor(users brig.ImageUsers) {
	s.quotaState.mu.Lock()
	defer s.quotaState.mu.Unlock()
	s.quotaState.users = users
}

// Wait implements brig.ImageEvictor.
func (s *Store) Wait() { s.removals.Wait() }

// touchInterval is the resolution of the recorded last use of an image.
const touchInterval = time.Minute

// touch records the use of an image as the modification time of its meta.json,
// so that all processes that share the directory see it.
func (s *Store) touch(digest string) {
	now := s.opts.Now()
	s.quotaState.mu.Lock()
	if s.quotaState.touched == nil {
		s.quotaState.touched = map[string]time.Time{}
	}
	due := now.Sub(s.quotaState.touched[digest]) >= touchInterval
	if due {
		s.quotaState.touched[digest] = now
	}
	s.quotaState.mu.Unlock()
	if !due {
		return
	}
	err := os.Chtimes(filepath.Join(s.imageDir(digest), "meta.json"), now, now)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("failed to record the use of an image", "digest", digest, "error", err)
	}
}

// maxImageSize returns the size limit of one image.
func (s *Store) maxImageSize() int64 {
	if q := s.opts.Quota; q > 0 {
		return min(q, s.opts.MaxSize)
	}
	return s.opts.MaxSize
}

// storedImage is the quota's view of an image.
type storedImage struct {
	digest string
	size   int64
	used   time.Time
	pulled bool // and therefore can be pulled again
}

// entrySize is the disk space of a file, directory or link in addition to its content.
const entrySize = 4 << 10

// footprint returns about how many bytes an image occupies on the disk.
func (m *meta) footprint() int64 { return m.Size + (m.Files+1)*entrySize }

// reserve frees space for an image that is about to be published. The caller
// calls done after it has published the image.
func (s *Store) reserve(ctx context.Context, m *meta) (done func(), err error) {
	if s.opts.Quota <= 0 || m.Source == sourceHost {
		return func() {}, nil
	}
	s.quotaState.making.Lock()
	if err := s.evictToFit(ctx, m); err != nil {
		s.quotaState.making.Unlock()
		return nil, err
	}
	return s.quotaState.making.Unlock, nil
}

func (s *Store) evictToFit(ctx context.Context, m *meta) error {
	all, err := s.listStored()
	if err != nil {
		return err
	}
	total := m.footprint()
	for _, i := range all {
		if i.digest == m.Digest {
			return nil // the image is already stored
		}
		total += i.size
	}
	if total <= s.opts.Quota {
		return nil
	}
	unused, users, err := s.findUnused(ctx, all)
	if err != nil {
		return err
	}
	least := total
	for _, i := range unused {
		least -= i.size
	}
	if least > s.opts.Quota {
		unused = nil // removing them would not free enough space
	}
	for _, i := range unused {
		if total <= s.opts.Quota {
			break
		}
		err := users.RemoveUnused(ctx, i.digest, func() error { return s.Remove(ctx, i.digest) })
		switch brig.KindOf(err) {
		case "":
			s.opts.Log.Info("removed an image to free disk space", "digest", i.digest, "bytes", i.size, "used", i.used)
			total -= i.size
		case brig.NotFound:
			total -= i.size
		case brig.FailedPrecondition: // a sandbox uses it
		default:
			return err
		}
	}
	if total > s.opts.Quota {
		return brig.Errorf(brig.FailedPrecondition, "images would take %d bytes of the disk, the most is %d, and the others are in use or cannot be pulled again", total, s.opts.Quota).
			WithHint("remove images (brig image rm), end sandboxes that use them, or raise images.max_size")
	}
	return nil
}

// findUnused returns the images that may be evicted: those that were pulled, have no alias, and are
// not in users.
func (s *Store) findUnused(ctx context.Context, all []storedImage) ([]storedImage, brig.ImageUsers, error) {
	s.quotaState.mu.Lock()
	users := s.quotaState.users
	s.quotaState.mu.Unlock()
	if users == nil {
		return nil, nil, nil
	}
	used, err := users.UsedImages(ctx)
	if err != nil {
		return nil, nil, err
	}
	x, err := s.readIndex()
	if err != nil {
		return nil, nil, err
	}
	used = maps.Clone(used)
	if used == nil {
		used = map[string]bool{}
	}
	for alias := range x.Aliases {
		_, target := x.aliasOf(alias)
		if !isDigest(target) {
			target = x.find(target)
		}
		used[target] = true
	}
	var unused []storedImage
	for _, i := range all {
		if i.pulled && !used[i.digest] {
			unused = append(unused, i)
		}
	}
	return unused, users, nil
}

// listStored lists images, the least recently used first.
func (s *Store) listStored() ([]storedImage, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var all []storedImage
	for _, e := range entries {
		hex, ok := strings.CutPrefix(e.Name(), "sha256-")
		if !ok {
			continue
		}
		m, err := s.readMeta(digestPrefix + hex)
		if err != nil {
			continue // removed since it was listed, or unreadable
		}
		fi, err := os.Stat(filepath.Join(s.imageDir(m.Digest), "meta.json"))
		if err != nil {
			continue
		}
		all = append(all, storedImage{m.Digest, m.footprint(), fi.ModTime(), m.Source == sourcePull})
	}
	slices.SortFunc(all, func(a, b storedImage) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.digest, b.digest))
	})
	return all, nil
}
