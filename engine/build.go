package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

const (
	// buildPatience is how long a create waits for the image of its template:
	// E2B's clients wait for a minute.
	buildPatience = 45 * time.Second
	// buildAgain is after how long a build that failed is tried again.
	buildAgain = 10 * time.Minute
)

// build is the making of a template's image.
type build struct {
	done  chan struct{}
	err   error // these are there when done is closed
	ended time.Time
}

// ensure makes the image of a template be there, for one create that did not
// find it, and returns what stands in for it if it cannot be.
func (e *Engine) ensure(ctx context.Context, t *brig.Template) (image string, err error) {
	if len(t.Packages) > 0 && e.BuildMissing {
		err := e.buildMissing(ctx, t)
		if err == nil {
			return t.Image, nil
		}
		if t.StandIn == "" || brig.KindOf(err) == brig.Unavailable || ctx.Err() != nil {
			return "", err
		}
		e.Log.WarnContext(ctx, "a template's image cannot be built", "template", t.Name, "err", err)
	}
	if t.StandIn == "" {
		return "", brig.Errorf(brig.FailedPrecondition, "the image %q of template %q is not here", clip(t.Image), t.Name).
			WithHint("the operator makes it: brig setup %s", t.Name)
	}
	return t.StandIn, nil
}

// buildMissing waits until the image of a template has been built, for a while:
// the building goes on without whoever waits, and those who come later find it.
func (e *Engine) buildMissing(ctx context.Context, t *brig.Template) error {
	b := e.building(t)
	patience := time.NewTimer(buildPatience)
	defer patience.Stop()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.C:
		return brig.Errorf(brig.Unavailable, "the image of template %q is being built", t.Name).WithHint("try again in half a minute")
	}
}

// building finds or begins the building of a template's image.
func (e *Engine) building(t *brig.Template) *build {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.builds[t.Image]; b != nil {
		select {
		case <-b.done:
			if b.err != nil && e.Now().Sub(b.ended) < buildAgain {
				return b
			}
		default:
			return b
		}
	}
	b := &build{done: make(chan struct{})}
	e.builds[t.Image] = b
	e.work.Go(func() {
		defer close(b.done)
		if _, err := e.Options.Images.Resolve(e.ctx, t.Image); err == nil {
			return // it was built after its caller looked
		}
		e.Log.Info("build a template's image", "template", t.Name, "image", t.Image)
		_, b.err = e.Options.Images.Build(e.ctx, brig.ImageBuild{Name: t.Image, Packages: t.Packages}, reporter(nil))
		b.ended = e.Now()
	})
	return b
}
