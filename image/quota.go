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

// room keeps images within the quota.
type room struct {
	making sync.Mutex // held from the moment room was made until it is taken

	mu      sync.Mutex           // guards the fields below
	evict   evictor              // nil: nothing is ever removed
	touched map[string]time.Time // when a use was last recorded
}

type evictor func(ctx context.Context, digest string, remove func() error) error

// EvictThrough implements brig.ImageEvictor.
func (s *Store) EvictThrough(f func(ctx context.Context, digest string, remove func() error) error) {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.evict = f
}

// touchAgain is how exactly the last use of an image is recorded.
const touchAgain = time.Minute

// touch records that an image is used: as the time of its meta.json, so that
// every process that shares the folder knows.
func (s *Store) touch(digest string) {
	now := s.opts.Now()
	s.room.mu.Lock()
	if s.room.touched == nil {
		s.room.touched = map[string]time.Time{}
	}
	due := now.Sub(s.room.touched[digest]) >= touchAgain
	if due {
		s.room.touched[digest] = now
	}
	s.room.mu.Unlock()
	if !due {
		return
	}
	err := os.Chtimes(filepath.Join(s.imageDir(digest), "meta.json"), now, now)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("the use of an image was not recorded", "digest", digest, "error", err)
	}
}

// largest is how large one image may be.
func (s *Store) largest() int64 {
	if q := s.opts.Quota; q > 0 {
		return min(q, s.opts.MaxSize)
	}
	return s.opts.MaxSize
}

// stored is an image as the quota sees it.
type stored struct {
	digest string
	size   int64
	used   time.Time
}

// reserve makes room for an image that is about to be published; the caller
// calls done when it is.
func (s *Store) reserve(ctx context.Context, m *meta) (done func(), err error) {
	if s.opts.Quota <= 0 || m.Size == 0 {
		return func() {}, nil
	}
	s.room.making.Lock()
	if err := s.makeRoom(ctx, m); err != nil {
		s.room.making.Unlock()
		return nil, err
	}
	return s.room.making.Unlock, nil
}

func (s *Store) makeRoom(ctx context.Context, m *meta) error {
	all, err := s.stored()
	if err != nil {
		return err
	}
	total := m.Size
	for _, i := range all {
		if i.digest == m.Digest {
			return nil // it is here already
		}
		total += i.size
	}
	s.room.mu.Lock()
	evict := s.room.evict
	s.room.mu.Unlock()
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
			s.opts.Log.Info("image was removed to make room", "digest", i.digest, "bytes", i.size, "used", i.used)
			total -= i.size
		case brig.NotFound:
			total -= i.size
		case brig.FailedPrecondition: // it is in use
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

// stored lists images, the one that was not used for the longest time first.
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
			continue // removed meanwhile, or not ours to judge
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
