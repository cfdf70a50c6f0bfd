package builder_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
)

// follow starts a build and follows it to its end. It returns the build and the texts of its log.
func (f *fixture) follow(t *testing.T, ctx context.Context, s brig.BuildSpec) (*brig.TemplateBuild, []string) {
	t.Helper()
	started, err := f.BuildTemplate(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	b, err := f.FollowTemplateBuild(ctx, s.Name, started.ID, 0, func(l brig.BuildLine) error {
		texts = append(texts, l.Text)
		return nil
	})
	if err != nil || b.ID != started.ID {
		t.Fatal(b, err)
	}
	return b, texts
}

// A build of the service runs its steps in order, and those who follow it get every line once.
func TestBuildTemplate(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	b, texts := f.follow(t, ctx, brig.BuildSpec{
		Name: "web", Tags: []string{"v1"}, Image: "base", Start: "", Steps: []brig.BuildStep{
			{Kind: brig.BuildRun, Command: "make", User: "root"}, {Kind: brig.BuildEnv, Env: map[string]string{"B": "2", "A": "1"}},
			{Kind: brig.BuildWorkdir, Dir: "/srv"}, {Kind: brig.BuildUser, User: "worker"},
		},
	})
	want := []string{"FROM base", "[1/4] RUN make root", "[2/4] ENV A B", "[3/4] WORKDIR /srv", "[4/4] USER worker", "Build finished"}
	if b.Status != brig.BuildReady || b.Env["A"] != "1" || b.Dir != "/srv" || !slices.Equal(texts, want) {
		t.Errorf("%+v, %q", b, texts)
	}
	rest := 0
	if _, err := f.FollowTemplateBuild(ctx, "web", b.ID, len(want)-1, func(brig.BuildLine) error { rest++; return nil }); err != nil || rest != 1 {
		t.Errorf("%d lines after the others, %v", rest, err)
	}
	stop := errors.New("enough")
	if _, err := f.FollowTemplateBuild(ctx, "web", b.ID, 0, func(brig.BuildLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the caller: %v", err)
	}
	for _, change := range []error{f.TagTemplate(ctx, "web", "v1", "stable"), f.UntagTemplate(ctx, "web", "v1")} {
		if change != nil {
			t.Error(change)
		}
	}
	d, err := f.GetTemplate(ctx, "web")
	if err != nil || len(d.Tags) != 1 || d.Tags["stable"].Build != b.ID || len(d.Builds) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := f.RemoveTemplate(ctx, "web"); err != nil || f.service.left() != "" {
		t.Errorf("%v, and the sandboxes are %q", err, f.service.left())
	}
}

// Errors name the fields of the REST API. A build that is not started leaves neither a build nor a template.
func TestBuildTemplateErrors(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	digest := strings.Repeat("a", 64)
	step := func(s brig.BuildStep) brig.BuildSpec {
		return brig.BuildSpec{Name: "web", Image: "base", Steps: []brig.BuildStep{{Kind: brig.BuildRun, Command: "make"}, s}}
	}
	copied := func(change func(*brig.BuildStep)) brig.BuildSpec {
		s := brig.BuildStep{Kind: brig.BuildCopy, Digest: digest, Source: ".", Destination: "/srv"}
		change(&s)
		return step(s)
	}
	for _, c := range []struct {
		field string
		spec  brig.BuildSpec
	}{
		{"name", brig.BuildSpec{Name: "web app", Image: "base"}},
		{"tags", brig.BuildSpec{Name: "web", Image: "base", Tags: []string{"a b"}}},
		{"image", brig.BuildSpec{Name: "web"}},
		{"image", brig.BuildSpec{Name: "web", Image: "base", Template: "web"}},
		{"limits.memory", brig.BuildSpec{Name: "web", Image: "base", Memory: 1}},
		{"limits.cpus", brig.BuildSpec{Name: "web", Image: "base", CPUs: -1}},
		{"start", brig.BuildSpec{Name: "web", Image: "base", Start: strings.Repeat("x", 20<<10)}},
		{"ready", brig.BuildSpec{Name: "web", Image: "base", Ready: strings.Repeat("x", 20<<10)}},
		{"steps", brig.BuildSpec{Name: "web", Image: "base", Steps: make([]brig.BuildStep, 1001)}},
		{"steps[1].type", step(brig.BuildStep{Kind: "shell"})},
		{"steps[1].command", step(brig.BuildStep{Kind: brig.BuildRun})},
		{"steps[1].command", step(brig.BuildStep{Kind: brig.BuildRun, Command: "a\x00"})},
		{"steps[1].cwd", step(brig.BuildStep{Kind: brig.BuildWorkdir})},
		{"steps[1].user", step(brig.BuildStep{Kind: brig.BuildUser})},
		{"steps[1].env", step(brig.BuildStep{Kind: brig.BuildEnv})},
		{"steps[1].env", step(brig.BuildStep{Kind: brig.BuildEnv, Env: map[string]string{"A=": "1"}})},
		{"steps[1].digest", copied(func(s *brig.BuildStep) { s.Digest = "../x" })},
		{"steps[1].digest", copied(func(*brig.BuildStep) {})}, // not uploaded
		{"steps[1].source", copied(func(s *brig.BuildStep) { s.Source = "" })},
		{"steps[1].destination", copied(func(s *brig.BuildStep) { s.Destination = "" })},
		{"steps[1].mode", copied(func(s *brig.BuildStep) { s.Mode = "u+x" })},
		{"steps[1].mode", copied(func(s *brig.BuildStep) { s.Mode = "7" })},
		{"steps[1].command", copied(func(s *brig.BuildStep) { s.Command = "make" })},
		{"steps[1].env", copied(func(s *brig.BuildStep) { s.Env = map[string]string{"A": "1"} })},
		{"start", brig.BuildSpec{Name: "web", Image: "base", Start: "a\x00"}},
		{"image", brig.BuildSpec{Name: "web", Image: strings.Repeat("a", 513)}},
		{"template", brig.BuildSpec{Name: "web", Template: "a b"}},
		{"template", brig.BuildSpec{Name: "web", Template: "web:a b"}},
		{"template", brig.BuildSpec{Name: "web", Template: strings.Repeat("a", 193)}},
		{"steps[1].owner", copied(func(s *brig.BuildStep) { s.Owner = "$(id)" })},
	} {
		_, err := f.BuildTemplate(ctx, c.spec)
		if e := brig.AsError(err); err == nil || e.Kind != brig.InvalidArgument || !strings.HasPrefix(e.Field, c.field) {
			t.Errorf("%v, want an error of %s", err, c.field)
		}
		if all, err := f.List(ctx); err != nil || len(all) > 0 {
			t.Fatalf("%s leaves %+v, %v", c.field, all, err)
		}
	}
	if err := f.PutTemplateFiles(ctx, "xyz", 1, strings.NewReader("x")); brig.AsError(err).Field != "digest" {
		t.Error(err)
	}
	if err := f.PutTemplateFiles(ctx, digest, -1, strings.NewReader("x")); brig.KindOf(err) != brig.InvalidArgument {
		t.Error(err)
	}
	if err := f.PutTemplateFiles(ctx, digest, 1, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	for tenant, want := range map[string]bool{"acme": true, "rival": false} {
		if has, err := f.HasTemplateFiles(as(t, tenant), digest); has != want || err != nil {
			t.Errorf("%s: %v, %v", tenant, has, err)
		}
	}
}

// A canceled build fails and leaves no sandbox. Only members of the tenant can cancel it.
func TestCancelTemplateBuild(t *testing.T) {
	f := newFixture(t, nil, nil)
	begun := make(chan struct{})
	f.service.run = func(ctx context.Context, _ *brig.Sandbox, _ string) (int, error) {
		close(begun)
		<-ctx.Done()
		return 0, ctx.Err()
	}
	ctx := as(t, "acme")
	b, err := f.BuildTemplate(ctx, brig.BuildSpec{Name: "web", Image: "base", Steps: []brig.BuildStep{{Kind: brig.BuildRun, Command: "sleep"}}})
	if err != nil || b.Status != brig.BuildRunning {
		t.Fatal(b, err)
	}
	<-begun
	viewer := brig.WithActor(t.Context(), brig.Actor{Tenant: "acme", Name: "viewer", Role: brig.Viewer})
	for kind, caller := range map[brig.Kind]context.Context{brig.NotFound: as(t, "rival"), brig.PermissionDenied: viewer} {
		if err := f.CancelTemplateBuild(caller, "web", b.ID); brig.KindOf(err) != kind {
			t.Errorf("%v, want %s", err, kind)
		}
	}
	if now, err := f.GetTemplateBuild(viewer, "web", b.ID); err != nil || now.Status != brig.BuildRunning {
		t.Errorf("the build is %+v, %v", now, err)
	}
	if err := f.CancelTemplateBuild(ctx, "web", b.ID); err != nil {
		t.Error(err)
	}
	end, err := f.FollowTemplateBuild(ctx, "web", b.ID, 0, func(brig.BuildLine) error { return nil })
	if err != nil || end.Failure == nil || end.Failure.Message != "the build was canceled" || f.service.left() != "" {
		t.Errorf("%+v, %v, and the sandboxes are %q", end, err, f.service.left())
	}
	if err := f.CancelTemplateBuild(ctx, "web", b.ID); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("the end of a build that has ended: %v", err)
	}
}

// engineStub is an engine for Compose that records what it creates.
type engineStub struct {
	brig.Service
	created []brig.Spec
}

func (*engineStub) Check(ctx context.Context, op brig.Op, _ string) error {
	return brig.ActorFrom(ctx).Authorize(op)
}

func (e *engineStub) Create(_ context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	e.created = append(e.created, spec)
	return &brig.Sandbox{Spec: spec}, nil
}

func (*engineStub) Templates(context.Context) ([]brig.Template, error) {
	return []brig.Template{{Name: "configured"}}, nil
}

// The service of a server with a builder creates copies of built templates, and leaves all other sandboxes
// to the engine.
func TestCompose(t *testing.T) {
	f := newFixture(t, nil, func(o *builder.Options) { o.Configured = []brig.Template{{Name: "configured"}} })
	ctx, engine := as(t, "acme"), &engineStub{}
	s := builder.Compose(engine, f.Builder)
	f.follow(t, ctx, brig.BuildSpec{Name: "web", Image: "base"})
	box, err := s.Create(ctx, brig.Spec{Template: "web", Env: map[string]string{"A": "1"}})
	if err != nil || box.Spec.Env["A"] != "1" || len(box.Spec.Labels) > 0 || len(engine.created) > 0 {
		t.Errorf("%+v, %v", box, err)
	}
	for _, spec := range []brig.Spec{{Image: "base"}, {Template: "configured"}, {Template: "none"}, {Template: "A b"}} {
		if _, err := s.Create(ctx, spec); err != nil || len(engine.created) != 1 {
			t.Errorf("%+v: the engine creates %+v, %v", spec, engine.created, err)
		}
		engine.created = nil
	}
	for field, spec := range map[string]brig.Spec{
		"command": {Command: &brig.Command{Shell: "x"}}, "workspace": {Workspace: brig.WorkspaceUse{Name: "w"}},
		"placement": {Placement: brig.Placement{Provider: "p"}}, "require": {Require: brig.Requirement{"memory": "boundary"}}, "image": {Image: "base"}, "ttl": {TTL: 1 << 60},
	} {
		spec.Template = "web"
		if _, err := s.Create(ctx, spec); brig.AsError(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := s.Create(brig.WithActor(ctx, brig.Actor{Tenant: "acme", Role: brig.Viewer}), brig.Spec{Template: "web"}); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
	for tenant, want := range map[string]int{"acme": 2, "rival": 1} {
		if all, err := s.Templates(as(t, tenant)); err != nil || len(all) != want {
			t.Errorf("%s sees %+v, %v", tenant, all, err)
		}
	}
}
