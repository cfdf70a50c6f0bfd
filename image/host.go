package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

// hostRefreshAge is the age of a check after which the next one starts in the
// background.
const hostRefreshAge = time.Second

// hostRefreshDelay delays a background check, because the client that requested
// the image will soon need the processors for a sandbox.
const hostRefreshDelay = 200 * time.Millisecond

// hostWatchPeriod is how long the store checks the host image in the background
// after the last request. The next request then finds a recent result, for
// example from an agent that thinks between two sandboxes. After that,
// background checks stop.
const hostWatchPeriod = 10 * time.Minute

// recentHost returns the host image as of a recent check. A stale result is
// acceptable, because a sandbox sees the host's current directories in any
// case.
func (s *Store) recentHost(ctx context.Context) (*brig.Image, error) {
	s.hostMu.Lock()
	s.lastRequest = s.opts.Now()
	age, found := s.lastRequest.Sub(s.seenAt), s.seen
	fresh := !s.seenAt.IsZero() && age >= 0 && age < s.opts.HostAge
	again := fresh && age > hostRefreshAge && !s.checking
	s.checking = s.checking || again
	s.hostMu.Unlock()
	if !fresh {
		return s.checkHost(ctx)
	}
	if again {
		time.AfterFunc(hostRefreshDelay, func() {
			if _, err := s.checkHost(context.WithoutCancel(ctx)); err != nil {
				s.opts.Log.Warn("failed to inspect the host image", "error", err)
			}
		})
	}
	found.Names = slices.Clone(found.Names)
	return &found, nil
}

func (s *Store) checkHost(ctx context.Context) (*brig.Image, error) {
	now := s.opts.Now()
	img, err := s.ensureHost(ctx)
	s.hostMu.Lock()
	defer s.hostMu.Unlock()
	s.checking = false
	if err == nil {
		s.seen, s.seenAt = *img, now
		s.seen.Names = slices.Clone(img.Names)
		s.watch(context.WithoutCancel(ctx))
	}
	return img, err
}

// watch schedules the next check before the current result is too old. The
// caller holds s.hostMu.
func (s *Store) watch(ctx context.Context) {
	if s.watching || s.opts.HostAge == 0 {
		return
	}
	s.watching = true
	time.AfterFunc(s.opts.HostAge*3/4, func() {
		s.hostMu.Lock()
		s.watching = false
		now := s.opts.Now()
		over, young := now.Sub(s.lastRequest) > hostWatchPeriod, now.Sub(s.seenAt) < s.opts.HostAge/4
		if young && !over {
			s.watch(ctx) // a caller has just requested the image
		}
		s.hostMu.Unlock()
		if over || young {
			return
		}
		if _, err := s.checkHost(ctx); err != nil {
			s.opts.Log.Warn("failed to inspect the host image", "error", err)
		}
	})
}

// ensureHost returns the host image that matches the current state of the host.
func (s *Store) ensureHost(ctx context.Context) (*brig.Image, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := openHostFS(s.opts.hostRoot)
	if err != nil {
		return nil, err
	}
	defer m.close()
	mark := m.fingerprint(s.privileged)
	x, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	if x.Host.Fingerprint == mark {
		found, err := s.readMeta(x.Host.Digest)
		if err == nil {
			return found.toImage(x), nil
		}
		if brig.KindOf(err) != brig.NotFound {
			return nil, err
		}
	}
	return s.buildHost(ctx, m, mark)
}

// buildHost rebuilds the synthetic part of the host image.
func (s *Store) buildHost(ctx context.Context, m *hostFS, mark string) (*brig.Image, error) {
	start := s.opts.Now()
	w, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	defer w.discard()
	root, err := w.makeRoot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	t := &hostTree{out: root, m: m, chown: s.privileged, log: s.opts.Log, dirs: map[string]*os.Root{}}
	defer t.close()
	if err := t.build(); err != nil {
		return nil, fmt.Errorf("build host image: %w", err)
	}
	digest, err := treeDigest(root, t.binds)
	if err != nil {
		return nil, fmt.Errorf("digest host image: %w", err)
	}
	img, err := s.publish(ctx, w, &meta{
		Version: metaVersion, Digest: digest, Created: s.opts.Now().UTC(), Source: sourceHost, Binds: t.binds,
	}, func(x *index) { x.Host = hostPointer{Fingerprint: mark, Digest: digest} })
	if err != nil {
		return nil, err
	}
	s.opts.Log.Info("host image is ready", "digest", digest, "took", s.opts.Now().Sub(start))
	return img, nil
}

// makeRoot creates and opens the directory that becomes an image's root.
func (w *scratch) makeRoot() (*os.Root, error) {
	dir := filepath.Join(w.dir, "image", "root")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make image folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // independent of the umask
		return nil, fmt.Errorf("open image folder to others: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open image folder: %w", err)
	}
	return root, nil
}
