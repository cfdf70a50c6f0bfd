package engine

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"

	"github.com/brig-run/brig"
)

// images resolves, pulls, builds and removes images, and holds the templates that
// name them.
type images struct {
	*gate
	// imageMu is held while an image is resolved and recorded, so that the
	// removal of an image sees all users of the image.
	imageMu sync.RWMutex
	// templates have their defaults filled in, and are immutable.
	templates map[string]brig.Template
	// unpool destroys the pooled instances of an image.
	unpool func(digest string)

	buildMu sync.Mutex        // guards builds
	builds  map[string]*build // by image name
}

// Images implements brig.Service.
func (i *images) Images(ctx context.Context) ([]*brig.Image, error) {
	return do(ctx, i.gate, brig.OpImages, "", func(v *call) ([]*brig.Image, error) {
		return i.Options.Images.List(ctx)
	})
}

// GetImage implements brig.Service.
func (i *images) GetImage(ctx context.Context, ref string) (*brig.Image, error) {
	return do(ctx, i.gate, brig.OpGetImage, "", func(v *call) (*brig.Image, error) {
		return i.Options.Images.Resolve(ctx, ref)
	})
}

// ImportImage implements brig.Service.
func (i *images) ImportImage(ctx context.Context, name string, r io.Reader, report func(brig.Progress)) (*brig.Image, error) {
	return do(ctx, i.gate, brig.OpImportImage, "", func(v *call) (*brig.Image, error) {
		if r == nil {
			return nil, brig.InvalidField("body", "no archive").WithHint("send a tar archive of a root file system")
		}
		return i.Options.Images.Import(ctx, name, r, reporter(report))
	})
}

// BuildImage implements brig.Service.
func (i *images) BuildImage(ctx context.Context, b brig.ImageBuild, report func(brig.Progress)) (*brig.Image, error) {
	return do(ctx, i.gate, brig.OpBuildImage, "", func(v *call) (*brig.Image, error) {
		return i.Options.Images.Build(ctx, b, reporter(report))
	})
}

// PullImage implements brig.Service.
func (i *images) PullImage(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error) {
	return do(ctx, i.gate, brig.OpPullImage, "", func(v *call) (*brig.Image, error) {
		return i.Options.Images.Pull(ctx, p, reporter(report))
	})
}

// TagImage implements brig.Service.
func (i *images) TagImage(ctx context.Context, ref, name string) (*brig.Image, error) {
	return do(ctx, i.gate, brig.OpTagImage, "", func(v *call) (*brig.Image, error) {
		t, ok := i.Options.Images.(brig.ImageTagger)
		if !ok {
			return nil, brig.Errorf(brig.Unimplemented, "images have no aliases here")
		}
		return t.Tag(ctx, ref, name)
	})
}

// pullMissing pulls a missing image for a sandbox, if pulling is allowed. It
// uses no credentials, because a create has none.
func (i *images) pullMissing(ctx context.Context, ref string) error {
	p, ok := i.Options.Images.(brig.ImagePuller)
	if !ok {
		return errNoPuller
	}
	_, err := p.PullMissing(ctx, ref)
	return err
}

// errNoPuller is the error of an image store that cannot pull images.
var errNoPuller = errors.New("images are not pulled here")

// guardImages makes the image store evict an image only while no sandbox uses
// it.
func (i *images) guardImages() {
	if k, ok := i.Options.Images.(brig.ImageEvictor); ok {
		k.EvictFor(imageUsers{i})
	}
}

// awaitImageRemovals waits until the files of removed images are deleted, or until ctx ends. In the
// latter case, the next process deletes the remaining files.
func (i *images) awaitImageRemovals(ctx context.Context) {
	k, ok := i.Options.Images.(brig.ImageEvictor)
	if !ok {
		return
	}
	deleted := make(chan struct{})
	go func() {
		k.Wait()
		close(deleted)
	}()
	select {
	case <-deleted:
	case <-ctx.Done():
	}
}

// imageUsers implements brig.ImageUsers.
type imageUsers struct{ *images }

// UsedImages implements brig.ImageUsers. The images of templates and of the pool's configuration
// are in use, too, because they may exist only on this host.
func (u imageUsers) UsedImages(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	err := u.Store.All(ctx, func(r *brig.Record) error {
		used[r.Digest] = used[r.Digest] || r.State.IsActive()
		return nil
	})
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, t := range u.templates {
		refs = append(refs, t.Image)
		if t.StandIn != "" {
			refs = append(refs, t.StandIn)
		}
	}
	for _, w := range u.Options.Pool.Warm {
		refs = append(refs, w.Image)
	}
	for _, ref := range refs {
		if img, err := u.Options.Images.Resolve(ctx, ref); err == nil {
			used[img.Digest] = true
		}
	}
	return used, nil
}

// RemoveUnused implements brig.ImageUsers.
func (u imageUsers) RemoveUnused(ctx context.Context, digest string, remove func() error) error {
	return u.removeUnused(ctx, digest, digest, remove)
}

// RemoveImage implements brig.Service.
func (i *images) RemoveImage(ctx context.Context, ref string) error {
	return i.do(ctx, brig.OpRemoveImage, "", func(v *call) error {
		img, err := i.Options.Images.Resolve(ctx, ref)
		if err != nil {
			return err
		}
		if img.Alias != "" { // remove only the alias
			return i.Options.Images.Remove(ctx, ref)
		}
		return i.removeUnused(ctx, truncate(ref), img.Digest, func() error {
			// The name may refer to another image now.
			now, err := i.Options.Images.Resolve(ctx, ref)
			if err != nil {
				return err
			}
			if now.Digest != img.Digest {
				return brig.Errorf(brig.FailedPrecondition, "image %q has just changed", truncate(ref)).WithHint("try again")
			}
			return i.Options.Images.Remove(ctx, ref)
		})
	})
}

// removeUnused calls remove if no sandbox uses the image with that digest. No
// sandbox with the image can be recorded between the check and the removal.
func (i *images) removeUnused(ctx context.Context, name, digest string, remove func() error) error {
	i.imageMu.Lock()
	defer i.imageMu.Unlock()
	users := 0
	err := i.Store.All(ctx, func(r *brig.Record) error {
		if r.Digest == digest && r.State.IsActive() {
			users++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if users > 0 {
		return brig.Errorf(brig.FailedPrecondition, "image %q is in use by %d sandboxes", name, users).
			WithHint("stop them first")
	}
	i.unpool(digest)
	return remove()
}

// withImage returns the environment of a sandbox: the variables of the image,
// overridden by those of the caller.
func withImage(img *brig.Image, env map[string]string) map[string]string {
	if len(img.Config.Env) == 0 {
		return env
	}
	all := maps.Clone(img.Config.Env)
	maps.Copy(all, env)
	return all
}

// reporter returns f, or a function that does nothing if f is nil.
func reporter(f func(brig.Progress)) func(brig.Progress) {
	if f == nil {
		return func(brig.Progress) {}
	}
	return f
}
