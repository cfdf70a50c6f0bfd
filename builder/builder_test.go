package builder_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/store/mem"
)

// fakeService has sandboxes without isolation, for tests of the order of calls.
type fakeService struct {
	mu       sync.Mutex
	boxes    map[string]*brig.Sandbox
	made     int
	commands []string
	base     string            // the digest of the image base
	output   map[string]string // what a command writes to its standard output
	// forking is called before a sandbox is copied. It may be nil.
	forking func(name string, o brig.ForkSpec) error
	// removing is called before a sandbox is removed. It may be nil.
	removing func(ctx context.Context) error
	// run is the result of a command. Default: it succeeds.
	run func(ctx context.Context, box *brig.Sandbox, command string) (int, error)
}

func (f *fakeService) add(spec brig.Spec, state brig.State) *brig.Sandbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	s := &brig.Sandbox{ID: brig.ID(fmt.Sprintf("sb%d", f.made)), Spec: spec, State: state}
	f.boxes[string(s.ID)] = s
	return s
}

func (f *fakeService) Create(_ context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	if spec.TTL > 30*time.Minute {
		return nil, brig.InvalidField("ttl_ms", "%v is out of bounds", spec.TTL)
	}
	if spec.Image == "missing" {
		return nil, brig.InvalidField("image", "no image %q", spec.Image)
	}
	s := f.add(spec, brig.Running)
	s.Digest = "sha256:" + f.base
	if spec.Template != "" {
		s.Notes = []string{"image: host, which stands in for " + spec.Template}
	}
	return s, nil
}

func (f *fakeService) Fork(_ context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	f.mu.Lock()
	forking := f.forking
	f.mu.Unlock()
	if forking != nil {
		if err := forking(name, o); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	from := f.boxes[name]
	f.mu.Unlock()
	if from == nil {
		return nil, brig.Errorf(brig.NotFound, "no sandbox %q", name)
	}
	spec := from.Spec
	spec.Env, spec.User, spec.Dir, spec.BuildRights, spec.Labels = o.Env, o.User, o.Dir, o.BuildRights, o.Labels
	return []*brig.Sandbox{f.add(spec, brig.Running)}, nil
}

func (f *fakeService) Pause(_ context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.boxes[name]
	if s.Spec.BuildRights && !o.FilesOnly {
		return nil, errors.New("the memory of a build is saved")
	}
	s.State, s.Spec.BuildRights = brig.Paused, false
	return s, nil
}

func (f *fakeService) Remove(ctx context.Context, name string) error {
	f.mu.Lock()
	removing := f.removing
	f.mu.Unlock()
	if removing != nil {
		if err := removing(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.boxes[name] == nil {
		return brig.Errorf(brig.NotFound, "no sandbox %q", name)
	}
	delete(f.boxes, name)
	return nil
}

func (f *fakeService) Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	f.mu.Lock()
	box, command := f.boxes[name], cmd.Argv[len(cmd.Argv)-1]
	if cmd.Timeout > 20*time.Minute {
		return nil, brig.InvalidField("timeout_ms", "%v is out of bounds", cmd.Timeout)
	}
	f.commands = append(f.commands, command)
	run, output := f.run, f.output[command]
	f.mu.Unlock()
	_, _ = io.WriteString(cmp.Or[io.Writer](sio.Stdout, io.Discard), output)
	switch whole := strings.Join(cmd.Argv, " "); {
	case strings.Contains(whole, "id -g"):
		_, _ = io.WriteString(sio.Stdout, "1001 1002\n")
	case strings.Contains(whole, "${PATH-}"):
		_, _ = io.WriteString(sio.Stdout, "/bin")
	}
	if run == nil {
		return &brig.Result{}, nil
	}
	code, err := run(ctx, box, command)
	return &brig.Result{ExitCode: code}, err
}

func (f *fakeService) Authorize(ctx context.Context, op brig.Op, _ string, do func(brig.Tenant) error) error {
	actor := brig.ActorFrom(ctx)
	if err := actor.Authorize(op); err != nil {
		return err
	}
	return do(brig.Tenant{Name: actor.Tenant})
}

func (f *fakeService) CallLimits(context.Context, string) (brig.LimitRange, error) {
	bounds := brig.DefaultLimitRange()
	bounds.MaxTTL, bounds.MaxTimeout = 30*time.Minute, 20*time.Minute // less than a build may take
	return bounds, nil
}

func (f *fakeService) KeepPaused(context.Context, string, brig.ID) error { return nil }
func (f *fakeService) Uncounted(ctx context.Context) context.Context     { return ctx }

func (f *fakeService) Files(string) brig.Files         { return nil }
func (f *fakeService) Processes(string) brig.Processes { return fakeProcesses{} }
func (f *fakeService) GetImage(_ context.Context, ref string) (*brig.Image, error) {
	if ref != "base" {
		return nil, brig.Errorf(brig.NotFound, "no image %q", ref)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &brig.Image{Digest: "sha256:" + f.base}, nil
}
func (f *fakeService) PullImage(context.Context, brig.ImagePull, func(brig.Progress)) (*brig.Image, error) {
	return nil, brig.Errorf(brig.PermissionDenied, "not with this key")
}

// fakeProcesses starts processes that do not end.
type fakeProcesses struct{ brig.Processes }

func (fakeProcesses) Start(context.Context, brig.ProcessSpec) (*brig.ProcessInfo, error) {
	return &brig.ProcessInfo{PID: 7}, nil
}

func (fakeProcesses) Attach(ctx context.Context, _ int, _ int64, _ func(brig.ProcessEvent) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// left returns the states of the sandboxes, sorted.
func (f *fakeService) left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var states []string
	for _, s := range f.boxes {
		states = append(states, string(s.State))
	}
	slices.Sort(states)
	return strings.Join(states, " ")
}

// wantLeft waits until the sandboxes have these states: some are removed in the background.
func (f *fakeService) wantLeft(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); f.left() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the sandboxes are %q, want %q", f.left(), want)
		}
	}
}

type fixture struct {
	*builder.Builder
	service *fakeService
	store   brig.Store
}

func newFixture(t *testing.T, store brig.Store, change func(*builder.Options)) *fixture {
	t.Helper()
	if store == nil {
		store = mem.New()
	}
	f := &fixture{service: &fakeService{boxes: map[string]*brig.Sandbox{}}, store: store}
	o := builder.Options{Service: f.service, Store: store, Dir: t.TempDir()}
	if change != nil {
		change(&o)
	}
	f.service, _ = o.Service.(*fakeService)
	b, err := builder.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	f.Builder = b
	return f
}

func as(t *testing.T, tenant string) context.Context {
	return brig.WithActor(t.Context(), brig.Actor{Tenant: tenant, Name: "someone", Role: brig.Member, Key: "key-" + tenant})
}

// start requests and starts a build.
func (f *fixture) start(t *testing.T, ctx context.Context, name string, p builder.Plan) *brig.TemplateBuild {
	t.Helper()
	_, x, err := f.Request(ctx, builder.Request{Name: name})
	if err == nil {
		err = f.Start(ctx, x.Template, x.ID, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// wait waits for the end of a build.
func (f *fixture) wait(t *testing.T, ctx context.Context, x *brig.TemplateBuild) *brig.TemplateBuild {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		now, err := f.Build(ctx, x.Template, x.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !now.Status.Unfinished() {
			return now
		}
		if time.Now().After(end) {
			t.Fatalf("the build is still %s", now.Status)
		}
	}
}

func run(commands ...string) builder.Plan {
	p := builder.Plan{Image: "base"}
	for _, c := range commands {
		p.Steps = append(p.Steps, builder.Step{Kind: builder.Run, Args: []string{c}})
	}
	return p
}

// A build passes what its steps set on to the sandboxes, and a later build replaces its files.
func TestBuild(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	p := run("first")
	p.Steps = append(p.Steps,
		builder.Step{Kind: builder.Env, Args: []string{"A", "1", "B", "$A-${A}-$C", "PATH", "/opt/bin:$PATH"}},
		builder.Step{Kind: builder.User, Args: []string{"worker"}},
		builder.Step{Kind: builder.Workdir, Args: []string{"app"}},
	)
	x := f.wait(t, ctx, f.start(t, ctx, "web:v1", p))
	want := map[string]string{"A": "1", "B": "1-1-", "PATH": "/opt/bin:/bin"}
	if x.Status != brig.BuildReady || !maps.Equal(x.Env, want) || x.User != "1001:1002" || x.Dir != "/home/user/app" || f.service.left() != "paused" {
		t.Fatalf("the build is %+v, and the sandboxes are %q", x, f.service.left())
	}
	found, build, err := f.Find(ctx, "WEB:v1")
	if err != nil || build.ID != x.ID || found.ID != x.Template {
		t.Fatalf("%+v, %+v, %v", found, build, err)
	}
	box, err := f.Create(ctx, "web:v1", brig.ForkSpec{Env: map[string]string{"A": "2"}})
	if err != nil || box.Spec.BuildRights || box.Spec.Env["A"] != "2" || box.Spec.Env["B"] != "1-1-" || box.Spec.User != "1001:1002" {
		t.Errorf("%+v, %v", box, err)
	}
	if err := f.service.Remove(ctx, string(box.ID)); err != nil {
		t.Fatal(err)
	}
	second := f.wait(t, ctx, f.start(t, ctx, "web:v1", builder.Plan{Template: "web:v1"}))
	if second.Status != brig.BuildReady || second.Env["A"] != "1" || second.Dir != "/home/user/app" {
		t.Errorf("the second build is %+v", second)
	}
	f.service.wantLeft(t, "paused")
	if err := f.service.Remove(ctx, string(second.Sandbox)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create(ctx, "web:v1", brig.ForkSpec{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a sandbox of a template whose paused sandbox was removed: %v", err)
	}
	if err := f.Remove(ctx, "web"); err != nil || f.service.left() != "" {
		t.Errorf("%v, and the sandboxes are %q", err, f.service.left())
	}
}

// A build that fails says in which phase, and leaves no sandbox and no tag.
func TestFailedBuildLeavesNothing(t *testing.T) {
	f := newFixture(t, nil, nil)
	f.service.run = func(_ context.Context, _ *brig.Sandbox, command string) (int, error) {
		switch command {
		case "fails":
			return 3, nil
		case "breaks":
			return 0, errors.New("secret detail")
		}
		return 0, nil
	}
	ctx := as(t, "acme")
	for _, c := range []struct {
		p             builder.Plan
		step, message string
	}{
		{run("ok", "fails"), "2", "exit status 3"},
		{run("breaks"), "1", "internal"},
		{builder.Plan{Image: "missing"}, "base", "no image"},
		{builder.Plan{Template: "missing"}, "base", "not found"},
		{builder.Plan{Image: "private", Username: "u", Password: "p"}, "base", "not with this key"},
		{builder.Plan{Image: "base", Steps: []builder.Step{{Kind: builder.User, Args: []string{"-x"}}}}, "1", "invalid username"},
		{builder.Plan{Image: "base", Steps: []builder.Step{{Kind: builder.Copy, Args: []string{"a", "b"}, Files: strings.Repeat("a", 64)}}}, "1", "not uploaded"},
	} {
		x := f.wait(t, ctx, f.start(t, ctx, "web", c.p))
		if x.Failure == nil || x.Failure.Step != c.step || !strings.Contains(x.Failure.Message, c.message) || strings.Contains(fmt.Sprint(x.Log), "secret detail") {
			t.Errorf("%+v: %+v", c.p, x.Failure)
		}
		if left := f.service.left(); left != "" {
			t.Errorf("%+v: the sandboxes %q are left", c.p, left)
		}
	}
	if _, build, err := f.Find(ctx, "web"); err != nil || build != nil {
		t.Errorf("the failed builds have a tag: %+v, %v", build, err)
	}
}

// A build ends when its key is revoked, its template is removed, or the server stops.
func TestBuildEndsEarly(t *testing.T) {
	for name, end := range map[string]func(f *fixture, ctx context.Context, revoked chan<- struct{}) error{
		"revoked": func(_ *fixture, _ context.Context, revoked chan<- struct{}) error { close(revoked); return nil },
		"removed": func(f *fixture, ctx context.Context, _ chan<- struct{}) error { return f.Remove(ctx, "web") },
		"stopped": func(f *fixture, _ context.Context, _ chan<- struct{}) error { f.Close(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			revoked := make(chan struct{})
			f := newFixture(t, nil, func(o *builder.Options) {
				o.Actor = func(context.Context, string) (brig.Actor, error) {
					select {
					case <-revoked:
						return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the key was revoked")
					default:
						return brig.Actor{Tenant: "acme", Role: brig.Member}, nil
					}
				}
			})
			began, proceed := make(chan struct{}), make(chan struct{})
			f.service.run = func(ctx context.Context, _ *brig.Sandbox, command string) (int, error) {
				if command != "waits" {
					t.Errorf("the step %q runs", command)
					return 0, nil
				}
				close(began)
				select {
				case <-proceed:
					return 0, nil
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			}
			ctx := as(t, "acme")
			f.start(t, ctx, "web", run("waits", "later"))
			<-began
			if err := end(f, ctx, revoked); err != nil {
				t.Fatal(err)
			}
			close(proceed)
			f.Close()
			if left := f.service.left(); left != "" {
				t.Errorf("the sandboxes %q are left", left)
			}
			for _, x := range f.builds(t) {
				if x.Status != brig.BuildFailed {
					t.Errorf("the build is %s", x.Status)
				}
			}
		})
	}
}

func (f *fixture) builds(t *testing.T) []*brig.TemplateBuild {
	t.Helper()
	all, err := f.store.Builds(t.Context(), brig.BuildFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Builds that a crash interrupted have failed.
func TestInterruptedBuildsFail(t *testing.T) {
	store := mem.New()
	f := newFixture(t, store, nil)
	ctx := as(t, "acme")
	_, waiting, err := f.Request(ctx, builder.Request{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	_, x, err := f.Request(ctx, builder.Request{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	x.Status = brig.BuildRunning
	if err := store.PutBuild(ctx, x); err != nil {
		t.Fatal(err)
	}
	next := newFixture(t, store, nil)
	if x, err := next.Build(ctx, x.Template, x.ID); err != nil || x.Status != brig.BuildFailed || x.Failure == nil {
		t.Errorf("%+v, %v", x, err)
	}
	if err := next.Start(ctx, waiting.Template, waiting.ID, run("ok")); err != nil {
		t.Errorf("a build that waits: %v", err)
	}
}

// A tenant can have a bounded number of templates, builds and running builds.
func TestBuildsAreBounded(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	hold := make(chan struct{})
	defer close(hold)
	f.service.run = func(ctx context.Context, _ *brig.Sandbox, _ string) (int, error) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return 0, context.Cause(ctx)
	}
	for range 4 {
		f.start(t, ctx, "web", run("waits"))
	}
	_, x, err := f.Request(ctx, builder.Request{Name: "web"})
	if err == nil {
		err = f.Start(ctx, x.Template, x.ID, run("waits"))
	}
	if brig.KindOf(err) != brig.RateLimited {
		t.Errorf("a fifth running build: %v", err)
	}
	if other := as(t, "other"); other != nil { // control: the bound is each tenant's own
		f.start(t, other, "web", run("waits"))
	}
	for range 40 {
		if _, _, err := f.Request(ctx, builder.Request{Name: "web"}); err != nil {
			t.Fatal(err)
		}
	}
	if all := f.builds(t); len(all) > 21 {
		t.Errorf("there are %d builds", len(all))
	}
	refused := 0
	for n := range 120 {
		if _, _, err := f.Request(ctx, builder.Request{Name: fmt.Sprintf("web%d", n)}); brig.KindOf(err) == brig.RateLimited {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if list, err := f.List(ctx); err != nil || len(list) != 100 || refused != 21 {
		t.Errorf("%d templates, %d refused, %v", len(list), refused, err)
	}
}

// No call of a tenant reaches the templates of another.
func TestTenantsAreApart(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx, other := as(t, "acme"), as(t, "other")
	x := f.wait(t, ctx, f.start(t, ctx, "web", run("ok")))
	_, waiting, err := f.Request(ctx, builder.Request{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(ctx context.Context) error{
		"find by name": func(ctx context.Context) error { _, _, err := f.Find(ctx, "web"); return err },
		"find by ID":   func(ctx context.Context) error { _, _, err := f.Find(ctx, x.Template); return err },
		"build":        func(ctx context.Context) error { _, err := f.Build(ctx, x.Template, x.ID); return err },
		"tag":          func(ctx context.Context) error { _, err := f.Tag(ctx, "web", []string{"a"}); return err },
		"untag":        func(ctx context.Context) error { return f.Untag(ctx, x.Template, []string{"a"}) },
		"start":        func(ctx context.Context) error { return f.Start(ctx, waiting.Template, waiting.ID, run("ok")) },
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if err := calls[name](other); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.Remove(other, "web"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("remove: %v", err)
	}
	if list, err := f.List(other); err != nil || len(list) != 0 {
		t.Errorf("list: %v, %v", list, err)
	}
	for _, name := range []string{"find by name", "find by ID", "build", "tag", "untag", "start"} { // control
		if err := calls[name](ctx); err != nil {
			t.Errorf("the tenant itself: %s: %v", name, err)
		}
	}
}

// A build does not repeat the first steps of an earlier one of its template, unless it is forced or the
// base has changed.
func TestBuildUsesEarlierSteps(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	commands := func(p builder.Plan) string {
		t.Helper()
		f.service.mu.Lock()
		f.service.commands = nil
		f.service.mu.Unlock()
		if x := f.wait(t, ctx, f.start(t, ctx, "web", p)); x.Status != brig.BuildReady || x.Env["A"] != "1" {
			t.Errorf("%+v: %+v", p, x)
		}
		f.service.wantLeft(t, "paused")
		f.service.mu.Lock()
		defer f.service.mu.Unlock()
		return strings.Join(f.service.commands, " ")
	}
	plan := func(commands ...string) builder.Plan {
		p := run(commands...)
		p.Steps = append([]builder.Step{{Kind: builder.Env, Args: []string{"A", "1"}}}, p.Steps...)
		return p
	}
	forced, later := plan("a", "b"), plan("a", "b", "c", "d")
	forced.Force, later.Steps[3].Force = true, true
	for _, c := range []struct {
		p    builder.Plan
		want string
	}{
		{plan("a", "b"), "a b"}, {plan("a", "b"), ""}, {plan("a", "b", "c"), "c"}, {plan("a", "x"), "a x"}, {plan("a", "x", "y"), "y"},
		{forced, "a b"}, {later, "c d"}, {builder.Plan{Image: "base", Steps: plan("a").Steps[:1]}, ""},
	} {
		if got := commands(c.p); got != c.want {
			t.Errorf("%+v: the commands are %q, want %q", c.p.Steps, got, c.want)
		}
	}
	f.service.base = "new"
	if got := commands(plan("a")); got != "a" {
		t.Errorf("on another base the commands are %q", got)
	}
	f.service.base = "newer"
	if got := commands(plan("a")); got != "a" {
		t.Errorf("on the next base the commands are %q", got)
	}
}
