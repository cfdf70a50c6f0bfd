package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// severing makes machines in which what is begun with files lasts until their
// agent is lost.
type severing struct {
	*fake.Provider
	begun, lost chan struct{}
}

type severed struct {
	brig.Instance
	p *severing
}

type severedFiles struct {
	brig.Files
	p *severing
}

// Create implements brig.Provider.
func (p *severing) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	in, err := p.Provider.Create(ctx, id, spec, lease)
	if err != nil {
		return nil, err
	}
	return &severed{in, p}, nil
}

// Files implements brig.Instance.
func (in *severed) Files() brig.Files { return severedFiles{in.Instance.Files(), in.p} }

// Watch implements brig.Files.
func (f severedFiles) Watch(context.Context, brig.Path, bool, func(brig.FileChange) error) error {
	f.p.begun <- struct{}{}
	<-f.p.lost
	return brig.Errorf(brig.Internal, "the agent in the sandbox does not answer")
}

// List implements brig.Files.
func (f severedFiles) List(ctx context.Context, p brig.Path, _ int) ([]*brig.Entry, error) {
	return nil, f.Watch(ctx, p, false, nil)
}

// A killed sandbox loses its agent a moment before it has ended: what is under
// way with its files says that the sandbox ended, and not that something broke.
func TestFilesOfWhatIsKilled(t *testing.T) {
	p := &severing{Provider: &fake.Provider{}, begun: make(chan struct{}), lost: make(chan struct{})}
	h := newHouse(t, func(o *engine.Options) { o.Provider = p })
	ctx := as(t, brig.Member)
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	box, ended := h.Files("box"), make(chan error, 2)
	go func() {
		ended <- box.Watch(ctx, brig.Path{Name: "/tmp"}, false, func(brig.FileChange) error { return nil })
	}()
	go func() {
		_, err := box.List(ctx, brig.Path{Name: "/tmp"}, 1)
		ended <- err
	}()
	<-p.begun
	<-p.begun
	close(p.lost)
	time.Sleep(50 * time.Millisecond) // what is not waited for has been told by then
	if _, err := h.Kill(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; brig.KindOf(err) != brig.FailedPrecondition && brig.KindOf(err) != brig.NotFound {
			t.Errorf("it ended with %v", err)
		}
	}
}
