package builder_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
)

// A build that begins with another template uses the newest build of it, also if that becomes ready after the build
// has found the one before.
func TestBaseIsBuiltAgain(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	first := f.wait(t, ctx, f.start(t, ctx, "base-template", builder.Plan{Image: "base", Ready: "first is ready"}))
	var second *brig.TemplateBuild
	var copied atomic.Bool
	f.service.forking = func(name string, _ brig.ForkSpec) error {
		if name != string(first.Files) || copied.Swap(true) {
			return nil
		}
		p := run("second")
		p.Ready = "second is ready"
		second = f.wait(t, ctx, f.start(t, ctx, "base-template", p))
		f.service.wantLeft(t, "paused") // that of the second build
		return nil
	}
	plan := builder.Plan{Template: "base-template"}
	x := f.wait(t, ctx, f.start(t, ctx, "web", plan))
	if x.Status != brig.BuildReady || second == nil || second.Status != brig.BuildReady || x.Ready != "second is ready" {
		t.Fatalf("the base %+v\nthe build %+v: %+v", second, x, x.Failure)
	}
	// The control: the base cannot be copied, and there is no newer build.
	if err := f.service.Remove(ctx, string(second.Files)); err != nil {
		t.Fatal(err)
	}
	if x := f.wait(t, ctx, f.start(t, ctx, "other", plan)); x.Status != brig.BuildFailed || x.Failure.Step != "base" || !strings.Contains(x.Failure.Message, "build the template again") {
		t.Errorf("with a base without files: %+v", x.Failure)
	}
}
