package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// pullingStore is an image store that can pull images.
type pullingStore struct {
	images
	mu           sync.Mutex
	here         map[string]*brig.Image
	remoteImages map[string]*brig.Image
	pulls        int
	users        brig.ImageUsers
}

func (s *pullingStore) Resolve(ctx context.Context, ref string) (*brig.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, i := range s.here {
		if ref == name || ref == i.Digest {
			return i, nil
		}
	}
	return s.images.Resolve(ctx, ref)
}

func (s *pullingStore) Pull(_ context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error) {
	report(brig.Progress{Step: "pull"})
	return s.PullMissing(context.Background(), p.Ref)
}

func (s *pullingStore) PullMissing(_ context.Context, ref string) (*brig.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls++
	if ref == "blocked:1" {
		return nil, brig.Errorf(brig.PolicyBlocked, "not from there")
	}
	i := s.remoteImages[ref]
	if i == nil {
		return nil, brig.Errorf(brig.NotFound, "there is no image %s", ref).WithHint("brig image pull %s", ref)
	}
	s.here[ref] = i
	return i, nil
}

func (s *pullingStore) EvictFor(users brig.ImageUsers) { s.users = users }

func (s *pullingStore) Wait() {}

func newPullingStore() *pullingStore {
	return &pullingStore{here: map[string]*brig.Image{}, remoteImages: map[string]*brig.Image{
		"python:3": {Digest: "sha256:py", Config: brig.ImageConfig{Env: map[string]string{"A": "image", "B": "image"}}},
	}}
}

// A missing image of a sandbox is pulled once if pulling is allowed. If the pull
// fails, the error has the field "image".
func TestCreatePullsItsImage(t *testing.T) {
	s := newPullingStore()
	h := newFixture(t, func(o *engine.Options) { o.Images = s })
	ctx := withRole(t, brig.Member)
	for range 2 {
		got, err := h.Create(ctx, brig.Spec{Image: "python:3", Env: map[string]string{"B": "caller", "C": "caller"}})
		if err != nil {
			t.Fatal(err)
		}
		if e := got.Spec.Env; got.Digest != "sha256:py" || len(e) != 3 || e["A"] != "image" || e["B"] != "caller" || e["C"] != "caller" {
			t.Errorf("%+v", got)
		}
	}
	if s.pulls != 1 {
		t.Errorf("%d pulls", s.pulls)
	}
	_, err := h.Create(ctx, brig.Spec{Image: "ruby:3"})
	if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidArgument || e.Field != "image" || !strings.Contains(e.Message, "ruby:3") || !strings.Contains(e.Hint, "brig image pull ruby:3") {
		t.Errorf("%+v", e)
	}
	if _, err := h.Create(ctx, brig.Spec{Image: "blocked:1"}); brig.KindOf(err) != brig.PolicyBlocked {
		t.Errorf("blocked: %v", err)
	}
	page, err := h.List(ctx, brig.ListOptions{})
	if err != nil || len(page.Sandboxes) != 2 {
		t.Errorf("%+v, %v", page, err)
	}
	// With an image store that cannot pull images, the image is not found.
	h = newFixture(t, nil)
	if _, err := h.Create(ctx, brig.Spec{Image: "python:3"}); brig.AsError(err).Field != "image" {
		t.Errorf("%v", err)
	}
}

func TestPullImageIsAudited(t *testing.T) {
	s := newPullingStore()
	h := newFixture(t, func(o *engine.Options) { o.Images = s })
	ctx := withRole(t, brig.Operator)
	if _, err := h.PullImage(ctx, brig.ImagePull{Ref: "python:3"}, nil); err != nil {
		t.Fatal(err)
	}
	events, err := h.store.Events(ctx, 10)
	if err != nil || len(events) != 2 || events[0].Op != "image.pull" || events[1].Phase != brig.Intent {
		t.Errorf("%+v, %v", events, err)
	}
}

// A template's stand-in image is in use even if no sandbox uses it now.
func TestStandInImagesAreNotEvicted(t *testing.T) {
	for standIn, want := range map[string]bool{"python:3": true, "": false} {
		s := newPullingStore()
		s.here["python:3"] = s.remoteImages["python:3"]
		newFixture(t, func(o *engine.Options) {
			o.Images, o.Templates = s, []brig.Template{{Name: "base", Image: "built", StandIn: standIn}}
		})
		if used, err := s.users.UsedImages(t.Context()); err != nil || used["sha256:py"] != want {
			t.Errorf("stand-in %q: %v, %v", standIn, used, err)
		}
	}
}

// The store evicts only images that no sandbox uses.
func TestImagesInUseAreNotEvicted(t *testing.T) {
	s := newPullingStore()
	h := newFixture(t, func(o *engine.Options) { o.Images = s })
	ctx := withRole(t, brig.Operator)
	box, err := h.Create(ctx, brig.Spec{Image: "python:3"})
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	evict := func() error {
		return s.users.RemoveUnused(ctx, "sha256:py", func() error { removed++; return nil })
	}
	if err := evict(); brig.KindOf(err) != brig.FailedPrecondition || removed != 0 {
		t.Errorf("%v, %d removed", err, removed)
	}
	if used, err := s.users.UsedImages(ctx); err != nil || !used["sha256:py"] {
		t.Errorf("%v, %v", used, err)
	}
	if err := h.Remove(ctx, box.Spec.Name); err != nil {
		t.Fatal(err)
	}
	if err := evict(); err != nil || removed != 1 {
		t.Errorf("%v, %d removed", err, removed)
	}
	if used, err := s.users.UsedImages(ctx); err != nil || used["sha256:py"] {
		t.Errorf("%v, %v", used, err)
	}
}

// aliasStore is an image store in which one image has an alias.
type aliasStore struct{ brig.ImageStore }

func (s aliasStore) Resolve(ctx context.Context, ref string) (*brig.Image, error) {
	if ref != "python:3.11-slim" {
		return s.ImageStore.Resolve(ctx, ref)
	}
	i, err := s.ImageStore.Resolve(ctx, brig.HostImage)
	if err != nil {
		return nil, err
	}
	named := *i
	named.Alias = ref
	return &named, nil
}

// If a caller requests an image by an alias, the result contains the name of the
// image that was used.
func TestResultNamesResolvedImage(t *testing.T) {
	h := newFixture(t, func(o *engine.Options) { o.Images = aliasStore{o.Images} })
	ctx := withRole(t, brig.Member)
	box, err := h.Create(ctx, brig.Spec{Image: "python:3.11-slim"})
	if err != nil || box.Spec.Image != brig.HostImage || !strings.Contains(strings.Join(box.Notes, "\n"), "image: host, by the alias python:3.11-slim") {
		t.Errorf("%+v, %v", box, err)
	}
	o, err := h.Run(ctx, brig.Program{Image: "python:3.11-slim", Command: []string{"echo", "hi"}}, brig.IO{})
	if err != nil || o.Image != brig.HostImage {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = h.Run(ctx, brig.Program{Command: []string{"echo", "hi"}}, brig.IO{}); err != nil || o.Image != "" {
		t.Errorf("without an alias: %+v, %v", o, err)
	}
}
