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

// lookAgain is how old a look may be before another is taken in the
// background.
const lookAgain = time.Second

// lookLater is how long such a look waits: whoever asks for the image is about to
// need the processors for a sandbox.
const lookLater = 200 * time.Millisecond

// keepLooking is how long the image is looked at by itself after somebody has asked
// for it, so that whoever comes back finds it known: an agent that thinks
// between two sandboxes, a person who reads. Then nothing happens at all.
const keepLooking = 10 * time.Minute

// recentHost returns the host image as it was a short while ago. What a
// sandbox sees of it is the machine's own folders in any case.
func (s *Store) recentHost(ctx context.Context) (*brig.Image, error) {
	s.hostMu.Lock()
	s.asked = s.opts.Now()
	age, found := s.asked.Sub(s.seenAt), s.seen
	fresh := !s.seenAt.IsZero() && age >= 0 && age < s.opts.HostAge
	again := fresh && age > lookAgain && !s.look
	s.look = s.look || again
	s.hostMu.Unlock()
	if !fresh {
		return s.lookAtHost(ctx)
	}
	if again {
		time.AfterFunc(lookLater, func() {
			if _, err := s.lookAtHost(context.WithoutCancel(ctx)); err != nil {
				s.opts.Log.Warn("host image cannot be looked at", "error", err)
			}
		})
	}
	found.Names = slices.Clone(found.Names)
	return &found, nil
}

func (s *Store) lookAtHost(ctx context.Context) (*brig.Image, error) {
	at := s.opts.Now()
	img, err := s.host(ctx)
	s.hostMu.Lock()
	defer s.hostMu.Unlock()
	s.look = false
	if err == nil {
		s.seen, s.seenAt = *img, at
		s.seen.Names = slices.Clone(img.Names)
		s.watch(context.WithoutCancel(ctx))
	}
	return img, err
}

// watch has the next look come by itself before this one is too old. The caller
// holds s.hostMu.
func (s *Store) watch(ctx context.Context) {
	if s.watching || s.opts.HostAge == 0 {
		return
	}
	s.watching = true
	time.AfterFunc(s.opts.HostAge*3/4, func() {
		s.hostMu.Lock()
		s.watching = false
		now := s.opts.Now()
		over, young := now.Sub(s.asked) > keepLooking, now.Sub(s.seenAt) < s.opts.HostAge/4
		if young && !over {
			s.watch(ctx) // somebody has just asked
		}
		s.hostMu.Unlock()
		if over || young {
			return
		}
		if _, err := s.lookAtHost(ctx); err != nil {
			s.opts.Log.Warn("host image cannot be looked at", "error", err)
		}
	})
}

// host returns the host image that fits this machine as it is now.
func (s *Store) host(ctx context.Context) (*brig.Image, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := openMachine(s.opts.hostRoot)
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
			return found.image(x), nil
		}
		if brig.KindOf(err) != brig.NotFound {
			return nil, err
		}
	}
	return s.buildHost(ctx, m, mark)
}

// buildHost makes the synthetic part of the host image anew.
func (s *Store) buildHost(ctx context.Context, m *machine, mark string) (*brig.Image, error) {
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

// makeRoot makes and opens the folder that becomes an image's root.
func (w *scratch) makeRoot() (*os.Root, error) {
	dir := filepath.Join(w.dir, "image", "root")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make image folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return nil, fmt.Errorf("open image folder to others: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open image folder: %w", err)
	}
	return root, nil
}
