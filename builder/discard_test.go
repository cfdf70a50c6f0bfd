package builder_test

import (
	"context"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/store/mem"
)

// setRemoving sets what is called before a sandbox is removed.
func (f *fakeService) setRemoving(removing func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removing = removing
}

func failsToRemove(context.Context) error {
	return brig.Errorf(brig.Unavailable, "the disk does not answer")
}

// restart closes the server of f, and returns the next one with the same sandboxes.
func (f *fixture) restart(t *testing.T) *fixture {
	t.Helper()
	f.Close()
	f.service.setRemoving(nil)
	return newFixture(t, f.store, func(o *builder.Options) { o.Service = f.service })
}

// The next server removes the sandboxes that a build, a change of tags or a failure has left, when the
// server has closed directly after it.
func TestNextServerRemovesDiscarded(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, f *fixture, ctx context.Context){
		"another build": func(t *testing.T, f *fixture, ctx context.Context) {
			if x := f.wait(t, ctx, f.start(t, ctx, "web:v1", run("other"))); x.Status != brig.BuildReady {
				t.Errorf("%+v", x.Failure)
			}
		},
		"untag": func(t *testing.T, f *fixture, ctx context.Context) {
			if err := f.Untag(ctx, "web", []string{"v1"}); err != nil {
				t.Error(err)
			}
		},
		"a failed build": func(t *testing.T, f *fixture, ctx context.Context) {
			f.service.run = func(context.Context, *brig.Sandbox, string) (int, error) { return 1, nil }
			if x := f.wait(t, ctx, f.start(t, ctx, "web:v2", run("fails"))); x.Status != brig.BuildFailed {
				t.Errorf("%+v", x)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil, nil)
			ctx := as(t, "acme")
			f.wait(t, ctx, f.start(t, ctx, "web:v1", run("first")))
			f.wait(t, ctx, f.start(t, ctx, "web:v0", run("second")))
			f.service.setRemoving(failsToRemove)
			change(t, f, ctx)
			want := map[string]string{"another build": "paused paused", "untag": "paused", "a failed build": "paused paused"}[name]
			if f.service.left() == want {
				t.Fatal("the control: the sandbox was removed")
			}
			next := f.restart(t)
			next.service.wantLeft(t, want)
			next.Close() // after it has recorded the removal
			for _, x := range next.builds(t) {
				if len(x.Discarded) > 0 {
					t.Errorf("the build still has the discarded sandboxes %q", x.Discarded)
				}
			}
		})
	}
}

// A template is gone at once, also if its sandboxes cannot be removed. They are removed later, and its name is
// free for another.
func TestRemovedTemplateKeepsNoSandboxes(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	first := f.wait(t, ctx, f.start(t, ctx, "web", run("first")))
	f.service.setRemoving(failsToRemove)
	if err := f.Remove(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	if left := f.service.left(); left != "paused" {
		t.Fatalf("the control: the sandboxes are %q", left)
	}
	_, waiting, err := f.Request(ctx, builder.Request{Name: "web"})
	if err != nil || waiting.Template == first.Template {
		t.Fatalf("another template of the name: %+v, %v", waiting, err)
	}
	for what, call := range map[string]func() error{
		"find":   func() error { _, _, err := f.Find(ctx, first.Template); return err },
		"tag":    func() error { _, err := f.Tag(ctx, first.Template+":default", []string{"a"}); return err },
		"remove": func() error { return f.Remove(ctx, first.Template) },
		"start":  func() error { return f.Start(ctx, first.Template, first.ID, run("ok")) },
	} {
		if err := call(); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s the removed template: %v", what, err)
		}
	}
	if list, err := f.List(ctx); err != nil || len(list) != 1 || list[0].ID != waiting.Template {
		t.Errorf("the templates are %+v, %v", list, err)
	}
	next := f.restart(t)
	next.service.wantLeft(t, "")
	next.Close()
	if all, err := f.store.BuiltTemplates(ctx, ""); err != nil || len(all) != 1 || all[0].ID != waiting.Template {
		t.Errorf("the store has %+v, %v", all, err)
	}
}

// A later change of the tenant's templates removes what could not be removed before.
func TestLaterChangeRemovesDiscarded(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	f.wait(t, ctx, f.start(t, ctx, "web", run("first")))
	f.service.setRemoving(failsToRemove)
	if err := f.Remove(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	f.service.setRemoving(nil)
	f.wait(t, ctx, f.start(t, ctx, "other", run("first")))
	f.service.wantLeft(t, "paused")
}

// A removal that takes long delays neither other calls of the tenant nor the end of the server.
func TestRemovalHoldsNoLock(t *testing.T) {
	for name, change := range map[string]func(f *fixture, ctx context.Context) error{
		"remove": func(f *fixture, ctx context.Context) error { return f.Remove(ctx, "web") },
		"untag":  func(f *fixture, ctx context.Context) error { return f.Untag(ctx, "web", []string{"default"}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, mem.New(), nil)
			ctx := as(t, "acme")
			f.wait(t, ctx, f.start(t, ctx, "web", run("first")))
			began, proceed := make(chan struct{}, 1), make(chan struct{})
			f.service.setRemoving(func(ctx context.Context) error {
				began <- struct{}{}
				select {
				case <-proceed:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			changed := make(chan error, 1)
			go func() { changed <- change(f, ctx) }()
			<-began
			if _, _, err := f.Request(ctx, builder.Request{Name: "other"}); err != nil {
				t.Errorf("a call during the removal: %v", err)
			}
			if name == "untag" {
				f.Close()
				f.service.setRemoving(nil)
				f = newFixture(t, f.store, func(o *builder.Options) { o.Service = f.service })
			}
			close(proceed)
			if err := <-changed; err != nil {
				t.Error(err)
			}
			f.service.wantLeft(t, "")
		})
	}
}
