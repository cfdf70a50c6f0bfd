package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

const (
	// buildTimeout is how long a create waits for the image of its template.
	// E2B's clients time out after a minute.
	buildTimeout = 45 * time.Second
	// buildRetryDelay is the delay before a failed build is tried again.
	buildRetryDelay = 10 * time.Minute
)

// build is one build of a template's image.
type build struct {
	done  chan struct{}
	err   error // err and ended are set before done is closed
	ended time.Time
}

// ensureImage builds the missing image of a template for one create. If the build fails,
// ensureImage returns the template's stand-in image, if there is one.
func (i *images) ensureImage(ctx context.Context, t *brig.Template) (image string, err error) {
	if len(t.Packages) > 0 && i.BuildMissing {
		err := i.buildMissing(ctx, t)
		if err == nil {
			return t.Image, nil
		}
		if t.StandIn == "" || brig.KindOf(err) == brig.Unavailable || ctx.Err() != nil {
			return "", err
		}
		i.Log.WarnContext(ctx, "failed to build a template's image", "template", t.Name, "err", err)
	}
	if t.StandIn == "" {
		return "", brig.Errorf(brig.FailedPrecondition, "the image %q of template %q is not here", truncate(t.Image), t.Name).
			WithHint("the operator builds it: brig setup %s", t.Name)
	}
	return t.StandIn, nil
}

// buildMissing waits until the image of a template is built, for at most
// buildTimeout. The build continues if the caller stops waiting, and later
// callers find its result.
func (i *images) buildMissing(ctx context.Context, t *brig.Template) error {
	b := i.startBuild(t)
	timeout := time.NewTimer(buildTimeout)
	defer timeout.Stop()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return brig.Errorf(brig.Unavailable, "the image of template %q is being built", t.Name).WithHint("try again in half a minute")
	}
}

// startBuild returns the running build of a template's image, or starts one.
func (i *images) startBuild(t *brig.Template) *build {
	i.buildMu.Lock()
	defer i.buildMu.Unlock()
	if b := i.builds[t.Image]; b != nil {
		select {
		case <-b.done:
			if b.err != nil && i.Now().Sub(b.ended) < buildRetryDelay {
				return b
			}
		default:
			return b
		}
	}
	b := &build{done: make(chan struct{})}
	i.builds[t.Image] = b
	i.background.Go(func() {
		defer close(b.done)
		if _, err := i.Options.Images.Resolve(i.ctx, t.Image); err == nil {
			return // another caller has built it since the first lookup
		}
		i.Log.Info("building a template's image", "template", t.Name, "image", t.Image)
		_, b.err = i.Options.Images.Build(i.ctx, brig.ImageBuild{Name: t.Image, Packages: t.Packages}, reporter(nil))
		b.ended = i.Now()
	})
	return b
}
