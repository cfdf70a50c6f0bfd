package engine

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/brig-run/brig"
)

// Images implements brig.Service.
func (e *Engine) Images(ctx context.Context) (_ []*brig.Image, err error) {
	v, err := e.enter(ctx, brig.OpImages, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Options.Images.List(ctx)
}

// GetImage implements brig.Service.
func (e *Engine) GetImage(ctx context.Context, ref string) (_ *brig.Image, err error) {
	v, err := e.enter(ctx, brig.OpGetImage, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Options.Images.Resolve(ctx, ref)
}

// ImportImage implements brig.Service.
func (e *Engine) ImportImage(ctx context.Context, name string, r io.Reader, report func(brig.Progress)) (_ *brig.Image, err error) {
	v, err := e.enter(ctx, brig.OpImportImage, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if r == nil {
		return nil, brig.InvalidField("body", "no archive").WithHint("send a tar archive of a root file system")
	}
	return e.Options.Images.Import(ctx, name, r, reporter(report))
}

// BuildImage implements brig.Service.
func (e *Engine) BuildImage(ctx context.Context, b brig.ImageBuild, report func(brig.Progress)) (_ *brig.Image, err error) {
	v, err := e.enter(ctx, brig.OpBuildImage, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Options.Images.Build(ctx, b, reporter(report))
}

// PullImage implements brig.Service.
func (e *Engine) PullImage(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (_ *brig.Image, err error) {
	v, err := e.enter(ctx, brig.OpPullImage, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Options.Images.Pull(ctx, p, reporter(report))
}

// pullMissing pulls the image of a sandbox that is not here, where that is
// allowed. Who creates one gives no credentials.
func (e *Engine) pullMissing(ctx context.Context, ref string) error {
	p, ok := e.Options.Images.(brig.ImagePuller)
	if !ok {
		return errNoPuller
	}
	_, err := p.PullMissing(ctx, ref)
	return err
}

// errNoPuller says that images are only those that are here.
var errNoPuller = errors.New("images are not pulled here")

// guardImages has images removed only while no sandbox uses them.
func (e *Engine) guardImages() {
	if k, ok := e.Options.Images.(brig.ImageEvictor); ok {
		k.EvictThrough(func(ctx context.Context, digest string, remove func() error) error {
			return e.removeUnused(ctx, digest, digest, remove)
		})
	}
}

// RemoveImage implements brig.Service.
func (e *Engine) RemoveImage(ctx context.Context, ref string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveImage, "")
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	img, err := e.Options.Images.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	return e.removeUnused(ctx, clip(ref), img.Digest, func() error {
		// The name may have come to mean another one meanwhile.
		now, err := e.Options.Images.Resolve(ctx, ref)
		if err != nil {
			return err
		}
		if now.Digest != img.Digest {
			return brig.Errorf(brig.FailedPrecondition, "image %q has just changed", clip(ref)).WithHint("try again")
		}
		return e.Options.Images.Remove(ctx, ref)
	})
}

// removeUnused calls remove if no sandbox uses the image of that digest. None
// is recorded between the look and the removal.
func (e *Engine) removeUnused(ctx context.Context, name, digest string, remove func() error) error {
	e.imageUse.Lock()
	defer e.imageUse.Unlock()
	users := 0
	err := e.Store.All(ctx, func(r *brig.Record) error {
		if r.Digest == digest && r.State.Live() {
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
	e.pool.drop(digest)
	return remove()
}

// withImage returns the environment of a sandbox of an image: the caller's
// over the image's.
func withImage(img *brig.Image, env map[string]string) map[string]string {
	if len(img.Config.Env) == 0 {
		return env
	}
	all := maps.Clone(img.Config.Env)
	maps.Copy(all, env)
	return all
}

// reporter makes a function that can always be called.
func reporter(f func(brig.Progress)) func(brig.Progress) {
	if f == nil {
		return func(brig.Progress) {}
	}
	return f
}
