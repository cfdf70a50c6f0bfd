package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// severingProvider creates instances whose file operations block until the
// connection to the agent is lost.
type severingProvider struct {
	*fake.Provider
	begun, lost chan struct{}
}

type severedInstance struct {
	brig.Instance
	p *severingProvider
}

type severedFiles struct {
	brig.Files
	p *severingProvider
}

// Create implements brig.Provider.
func (p *severingProvider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	in, err := p.Provider.Create(ctx, id, spec, lease)
	if err != nil {
		return nil, err
	}
	return &severedInstance{in, p}, nil
}

// Files implements brig.Instance.
func (in *severedInstance) Files() brig.Files { return severedFiles{in.Instance.Files(), in.p} }

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

// When a sandbox is killed, the connection to its agent is lost shortly before the
// end of the instance is reported. Pending file operations then report the end of
// the sandbox instead of an internal error.
func TestFileCallsReportKilledSandbox(t *testing.T) {
	p := &severingProvider{Provider: &fake.Provider{}, begun: make(chan struct{}), lost: make(chan struct{})}
	h := newFixture(t, func(o *engine.Options) { o.Provider = p })
	ctx := withRole(t, brig.Member)
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
	time.Sleep(50 * time.Millisecond) // time for operations that wrongly do not wait to return
	if _, err := h.Kill(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; brig.KindOf(err) != brig.FailedPrecondition && brig.KindOf(err) != brig.NotFound {
			t.Errorf("it ended with %v", err)
		}
	}
}
