package image

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
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
	evict   evictor              // nil: the store evicts no image
	touched map[string]time.Time // the time of the last recorded use
}

type evictor func(ctx context.Context, digest string, remove func() error) error

// EvictThrough implements brig.ImageEvictor.
func (s *Store) EvictThrough(f func(ctx context.Context, digest string, remove func() error) error) {
	s.quotaState.mu.Lock()
	defer s.quotaState.mu.Unlock()
	s.quotaState.evict = f
}

// touchInterval is the resolution of the recorded last use of an image.
const touchInterval = time.Minute

// touch records the use of an image as the modification time of its meta.json,
// so that all processes that share the folder see it.
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

// stored is the quota's view of an image.
type stored struct {
	digest string
	size   int64
	used   time.Time
}

// reserve frees space for an image that is about to be published. The caller
// calls done after it has published the image.
func (s *Store) reserve(ctx context.Context, m *meta) (done func(), err error) {
	if s.opts.Quota <= 0 || m.Size == 0 {
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
	all, err := s.stored()
	if err != nil {
		return err
	}
	total := m.Size
	for _, i := range all {
		if i.digest == m.Digest {
			return nil // the image is already stored
		}
		total += i.size
	}
	s.quotaState.mu.Lock()
	evict := s.quotaState.evict
	s.quotaState.mu.Unlock()
	for _, i := range all {
		if total <= s.opts.Quota || evict == nil {
			break
		}
		if i.size == 0 {
			continue
		}
		err := evict(ctx, i.digest, func() error { return s.Remove(ctx, i.digest) })
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
		return brig.Errorf(brig.FailedPrecondition, "images would take %d bytes of the disk, the most is %d, and the others are in use", total, s.opts.Quota).
			WithHint("remove images (brig image rm), end sandboxes that use them, or raise images.max_size")
	}
	return nil
}

// stored lists images, the least recently used first.
func (s *Store) stored() ([]stored, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var all []stored
	for _, e := range entries {
		hex, ok := strings.CutPrefix(e.Name(), "sha256-")
		if !ok {
			continue
		}
		m, err := s.readMeta(digestPrefix + hex)
		if err != nil {
			continue // removed meanwhile, or unreadable
		}
		fi, err := os.Stat(filepath.Join(s.imageDir(m.Digest), "meta.json"))
		if err != nil {
			continue
		}
		all = append(all, stored{m.Digest, m.Size, fi.ModTime()})
	}
	slices.SortFunc(all, func(a, b stored) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.digest, b.digest))
	})
	return all, nil
}
