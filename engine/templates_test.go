package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

func argv(words ...string) *brig.Command { return &brig.Command{Argv: words} }

// newTemplateFixture returns a fixture with templates, and images that can be built.
func newTemplateFixture(t *testing.T, b *builder, all ...brig.Template) *fixture {
	t.Helper()
	return newFixture(t, func(o *engine.Options) {
		o.Templates = all
		if b != nil {
			o.Images, o.BuildMissing = b, true
		}
	})
}

func TestCreateAppliesTemplateDefaults(t *testing.T) {
	h := newTemplateFixture(t, nil, brig.Template{
		Name: "web", Image: brig.HostImage, Limits: brig.Limits{Memory: brig.GiB}, Env: map[string]string{"A": "1"}, TTL: time.Hour,
		User: "root", Dir: "/srv", Start: argv("sleep", "60"), Ready: argv("echo", "yes"), ReadyTimeout: 10 * time.Minute,
	})
	ctx := withRole(t, brig.Member)
	s, err := h.Create(ctx, brig.Spec{Template: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if sp := s.Spec; s.State != brig.Running || sp.Template != "web" || sp.Image != brig.HostImage || sp.Limits.Memory != brig.GiB || sp.Env["A"] != "1" || sp.TTL != time.Hour {
		t.Errorf("%+v", s)
	}
	if remaining := time.Until(s.Expires); remaining > time.Hour || remaining < 50*time.Minute {
		t.Errorf("its lease is of %v: the time to be ready in does not count", remaining)
	}
	list, err := h.Processes(s.Spec.Name).List(ctx)
	if err != nil || len(list) != 1 || list[0].Spec.Tag != brig.StartTag || list[0].Result != nil {
		t.Fatalf("%+v, %v", list, err)
	}
	if c := list[0].Spec.Command; c.User != "root" || c.Dir != "/srv" {
		t.Errorf("it was started as %+v", c)
	}
	res, err := h.Exec(ctx, s.Spec.Name, *argv("echo"), brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := h.GetExec(ctx, s.Spec.Name, res.ExecID)
	if err != nil || x.Command.User != "root" || x.Command.Dir != "/srv" {
		t.Errorf("a command that does not say ran as %+v, %v", x.Command, err)
	}
	if all, err := h.Templates(ctx); err != nil || len(all) != 1 || all[0].Name != "web" || all[0].ReadyInterval == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for field, spec := range map[string]brig.Spec{
		"template": {Template: "wob"}, "image": {Template: "web", Image: "other"},
	} {
		_, err := h.Create(ctx, spec)
		if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidArgument || e.Field != field || e.Hint == "" {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// The commands of a template whose user consists of IDs run as that user.
func TestTemplateUserCanBeIDs(t *testing.T) {
	h := newTemplateFixture(t, nil, brig.Template{Name: "web", Image: brig.HostImage, User: "1001:1002"})
	ctx := withRole(t, brig.Member)
	s, err := h.Create(ctx, brig.Spec{Template: "web"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.Exec(ctx, s.Spec.Name, *argv("echo"), brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := h.GetExec(ctx, s.Spec.Name, res.ExecID); err != nil || x.Command.User != "1001:1002" {
		t.Errorf("%+v, %v", x.Command, err)
	}
}

// A sandbox that does not become ready is removed, and the error contains the
// reason.
func TestTemplateIsNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		template brig.Template
		says     []string
	}{
		"never":           {brig.Template{Ready: argv("exit", "3"), ReadyTimeout: 300 * time.Millisecond, ReadyInterval: time.Millisecond}, []string{"300ms", "exits with 3"}},
		"hangs":           {brig.Template{Ready: argv("sleep", "60"), ReadyTimeout: 300 * time.Millisecond}, []string{"did not end"}},
		"start fails":     {brig.Template{Start: argv("exit", "5"), Ready: argv("exit", "1"), ReadyInterval: time.Millisecond}, []string{"start command exited with 5"}},
		"no such program": {brig.Template{Start: argv("missing")}, []string{"start command cannot be started", "missing"}},
		"it dies":         {brig.Template{Ready: argv("crash")}, []string{"ended before it was ready"}},
		"no entrypoint":   {brig.Template{Entrypoint: true}, []string{"neither an entrypoint nor a command"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.template.Name, c.template.Image = "web", brig.HostImage
			h := newTemplateFixture(t, nil, c.template)
			ctx := withRole(t, brig.Member)
			_, err := h.Create(ctx, brig.Spec{Name: "box", Template: "web"})
			e := brig.AsError(err)
			if e == nil || e.Kind != brig.CreationFailed {
				t.Fatalf("%v", err)
			}
			for _, s := range append(c.says, `"web"`) {
				if !strings.Contains(e.Message, s) {
					t.Errorf("%q does not say %q", e.Message, s)
				}
			}
			if _, err := h.Get(ctx, "box"); brig.KindOf(err) != brig.NotFound {
				t.Errorf("its record: %v", err)
			}
			if machines := h.provider.Machines(); len(machines) > 0 {
				t.Errorf("left: %v", machines)
			}
		})
	}
}

// If the caller disconnects before a sandbox is ready, the sandbox is removed.
func TestDisconnectBeforeReadyRemovesSandbox(t *testing.T) {
	h := newTemplateFixture(t, nil, brig.Template{Name: "web", Image: brig.HostImage, Ready: argv("exit", "1")})
	ctx, cancel := context.WithCancel(withRole(t, brig.Member))
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := h.Create(ctx, brig.Spec{Name: "box", Template: "web"}); brig.KindOf(err) != brig.Canceled {
		t.Errorf("%v", err)
	}
	if _, err := h.Get(withRole(t, brig.Member), "box"); brig.KindOf(err) != brig.NotFound || len(h.provider.Machines()) > 0 {
		t.Errorf("%v, %v", err, h.provider.Machines())
	}
}

// builder builds an image when it receives from gate.
type builder struct {
	images
	gate chan error

	mu     sync.Mutex
	built  map[string]bool
	builds int
}

func newBuilder() *builder { return &builder{gate: make(chan error, 8), built: map[string]bool{}} }

func (b *builder) Resolve(ctx context.Context, ref string) (*brig.Image, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.built[ref] {
		return &brig.Image{Digest: "sha256:" + ref}, nil
	}
	return b.images.Resolve(ctx, ref)
}

func (b *builder) Build(ctx context.Context, what brig.ImageBuild, _ func(brig.Progress)) (*brig.Image, error) {
	b.mu.Lock()
	b.builds++
	b.mu.Unlock()
	select {
	case err := <-b.gate:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.built[what.Name] = true
	return &brig.Image{Digest: "sha256:" + what.Name}, nil
}

// A template's image is built on first use, once for all concurrent callers. If
// the build fails, the stand-in is used.
func TestTemplateIsBuilt(t *testing.T) {
	all := []brig.Template{
		{Name: "data", Packages: []string{"git"}},
		{Name: "both", Packages: []string{"git"}, StandIn: brig.HostImage},
	}
	b := newBuilder()
	h := newTemplateFixture(t, b, all...)
	ctx := withRole(t, brig.Member)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := h.Create(ctx, brig.Spec{Template: "data"})
			if err != nil || s.Digest != "sha256:data" || s.Spec.Image != "data" {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	b.gate <- nil
	wg.Wait()
	if b.builds != 1 {
		t.Errorf("%d builds", b.builds)
	}
	b.gate <- errors.New("no network")
	for range 2 { // the build is not retried immediately
		s, err := h.Create(ctx, brig.Spec{Template: "both"})
		if err != nil || s.Spec.Image != brig.HostImage || !strings.Contains(strings.Join(s.Notes, "\n"), "host, which stands in for both") {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if b.builds != 2 {
		t.Errorf("%d builds", b.builds)
	}
	// Without a builder the stand-in is used. A template without a stand-in
	// fails.
	h = newTemplateFixture(t, nil, all...)
	if s, err := h.Create(ctx, brig.Spec{Template: "both"}); err != nil || s.Spec.Image != brig.HostImage {
		t.Errorf("%+v, %v", s, err)
	}
	_, err := h.Create(ctx, brig.Spec{Template: "data"})
	if e := brig.AsError(err); e == nil || e.Kind != brig.FailedPrecondition || !strings.Contains(e.Hint, "brig setup data") {
		t.Errorf("%v", err)
	}
}
