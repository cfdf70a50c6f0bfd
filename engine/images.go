package engine

import (
	"context"
	"io"

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

// RemoveImage implements brig.Service.
func (e *Engine) RemoveImage(ctx context.Context, ref string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveImage, "")
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	// No sandbox is recorded between the look and the removal.
	e.imageUse.Lock()
	defer e.imageUse.Unlock()
	img, err := e.Options.Images.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	users := 0
	err = e.Store.All(ctx, func(r *brig.Record) error {
		if r.Digest == img.Digest && r.State.Live() {
			users++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if users > 0 {
		return brig.Errorf(brig.FailedPrecondition, "image %q is in use by %d sandboxes", clip(ref), users).
			WithHint("stop them first")
	}
	e.pool.drop(img.Digest)
	return e.Options.Images.Remove(ctx, ref)
}

// reporter makes a function that can always be called.
func reporter(f func(brig.Progress)) func(brig.Progress) {
	if f == nil {
		return func(brig.Progress) {}
	}
	return f
}
