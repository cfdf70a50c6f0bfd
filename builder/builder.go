package builder

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Bounds of what a tenant can store, and of one build.
const (
	maxTemplates  = 100 // of a tenant
	maxBuilds     = 20  // of a template
	maxConcurrent = 4   // running builds of a tenant
	maxTags       = 100 // of a template
	maxSteps      = 1000
	maxText       = 64 * brig.KiB // of a command, of a step's arguments
	buildTimeout  = time.Hour     // of one build
)

// Service is the part of brig.Service in which builds run.
type Service interface {
	Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error)
	Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error)
	Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error)
	Remove(ctx context.Context, name string) error
	Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error)
	Files(name string) brig.Files
	Processes(name string) brig.Processes
	PullImage(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error)
}

// Options configure a Builder. Service, Store and Dir are required.
type Options struct {
	Service Service
	Store   brig.TemplateStore
	// Dir is the directory of uploaded files, which only the server may enter.
	Dir string
	// Configured are the templates of the server's configuration. A build can begin with one, and
	// cannot take its name.
	Configured []brig.Template
	// Egress are the rules of the sandboxes in which steps run. Default: no connections.
	Egress brig.Egress
	// LimitRange holds the limits of the Service. Default: brig.DefaultLimitRange.
	LimitRange brig.LimitRange
	// Actor returns the actor of a key, or Unauthenticated if the key is no longer valid. A build
	// ends before its next step if its key is not. Default: keys remain valid.
	Actor func(ctx context.Context, key string) (brig.Actor, error)
	// MaxUploads bounds the bytes of a tenant's uploaded files. Default 1 GiB.
	MaxUploads int64
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Log is the operator's log. Default: no log.
	Log *slog.Logger
}

// Builder builds templates and finds them. The context of each call carries the actor, whose
// permissions the caller has checked.
type Builder struct {
	Options
	configured map[string]brig.Template
	uploads    *uploads
	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	background sync.WaitGroup
	changes    tenantLocks // held while a template is read, changed and written

	mu      sync.Mutex          // guards the field below
	running map[string]*running // by the ID of a build
}

// New returns a Builder. Builds that another process began have failed, because it no longer runs.
func New(ctx context.Context, o Options) (*Builder, error) {
	if o.LimitRange == (brig.LimitRange{}) {
		o.LimitRange = brig.DefaultLimitRange()
	}
	if o.MaxUploads <= 0 {
		o.MaxUploads = brig.GiB
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Builder{Options: o, configured: map[string]brig.Template{}, running: map[string]*running{}}
	for _, t := range o.Configured {
		b.configured[t.Name] = t
	}
	var err error
	if b.uploads, err = newUploads(o.Dir, o.MaxUploads, o.Now); err != nil {
		return nil, err
	}
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	return b, b.failInterrupted(ctx)
}

// Close ends the running builds, which fail, and waits for them.
func (b *Builder) Close() {
	b.stop()
	b.background.Wait()
}

func (b *Builder) failInterrupted(ctx context.Context) error {
	list, err := b.Store.Builds(ctx, brig.BuildFilter{Unfinished: true})
	if err != nil {
		return fmt.Errorf("list unfinished builds: %w", err)
	}
	for _, x := range list {
		if x.Status != brig.BuildRunning {
			continue
		}
		full, err := b.Store.GetBuild(ctx, x.Tenant, x.Template, x.ID)
		if err != nil {
			return fmt.Errorf("read build %s: %w", x.ID, err)
		}
		full.Status, full.Finished = brig.BuildFailed, b.Now().UTC()
		full.Failure = &brig.BuildFailure{Step: stepBase, Message: "the server was restarted during the build"}
		if err := b.Store.PutBuild(ctx, full); err != nil {
			return fmt.Errorf("record the end of build %s: %w", x.ID, err)
		}
	}
	return nil
}

// Request describes a build that a client is about to upload files for.
type Request struct {
	// Name is the name of a template, which is created if it does not exist, with an optional tag
	// ("web" or "web:v1").
	Name string
	// Tags refer to the build when it is ready. Default: the tag in Name, or DefaultTag.
	Tags []string
	// CPUs and Memory are the limits of the sandboxes. Default: those of the server.
	CPUs   float64
	Memory int64
}

// Request creates a build, which waits for Start.
func (b *Builder) Request(ctx context.Context, r Request) (*brig.BuiltTemplate, *brig.TemplateBuild, error) {
	name, tag, err := ParseName(r.Name)
	if err != nil {
		return nil, nil, err
	}
	tags, err := checkTags(tag, r.Tags)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := b.configured[name]; ok {
		return nil, nil, brig.Errorf(brig.AlreadyExists, "the template %q belongs to the server's configuration", name).WithHint("choose another name")
	}
	limits, err := b.LimitRange.Fill(brig.Limits{CPUs: r.CPUs, Memory: r.Memory})
	if err != nil {
		return nil, nil, err
	}
	defer b.changes.lock(brig.ActorFrom(ctx).Tenant)()
	t, err := b.findOrCreate(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if err := b.makeRoom(ctx, t); err != nil {
		return nil, nil, err
	}
	x := &brig.TemplateBuild{
		ID: newBuildID(), Template: t.ID, Tenant: t.Tenant, Status: brig.BuildWaiting, Limits: limits, Created: b.Now().UTC(),
		Actor: brig.ActorFrom(ctx).Name, Tags: tags,
	}
	return t, x, b.Store.PutBuild(ctx, x)
}

// findOrCreate returns the tenant's template with a name.
func (b *Builder) findOrCreate(ctx context.Context, name string) (*brig.BuiltTemplate, error) {
	tenant := brig.ActorFrom(ctx).Tenant
	t, err := b.Store.GetTemplate(ctx, tenant, name)
	if brig.KindOf(err) != brig.NotFound {
		return t, err
	}
	all, err := b.Store.BuiltTemplates(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if len(all) >= maxTemplates {
		return nil, brig.Errorf(brig.RateLimited, "the tenant has %d templates, the maximum", maxTemplates).WithHint("remove one")
	}
	now := b.Now().UTC()
	t = &brig.BuiltTemplate{ID: newTemplateID(), Tenant: tenant, Name: name, Created: now, Updated: now, Tags: map[string]brig.TemplateTag{}}
	return t, b.Store.PutTemplate(ctx, t)
}

// makeRoom deletes the oldest build of a template that nothing refers to, if the template has as
// many as it may have.
func (b *Builder) makeRoom(ctx context.Context, t *brig.BuiltTemplate) error {
	all, err := b.Store.Builds(ctx, brig.BuildFilter{Tenant: t.Tenant, Template: t.ID})
	if err != nil || len(all) < maxBuilds {
		return err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Status == brig.BuildRunning || len(tagsOf(t, all[i].ID)) > 0 {
			continue
		}
		b.removeSandboxes(ctx, all[i])
		return b.Store.DeleteBuild(ctx, t.Tenant, t.ID, all[i].ID)
	}
	return brig.Errorf(brig.RateLimited, "the template %q has %d builds, the maximum", t.Name, maxBuilds).WithHint("remove a tag, or wait until a build ends")
}

// removeSandboxes removes the sandboxes that a build has left. A sandbox that its tenant has
// removed is no error.
func (b *Builder) removeSandboxes(ctx context.Context, x *brig.TemplateBuild) {
	for i, id := range []brig.ID{x.Files, x.Sandbox} {
		if id == "" || i == 1 && id == x.Files {
			continue
		}
		if err := b.Service.Remove(ctx, string(id)); err != nil && brig.KindOf(err) != brig.NotFound {
			b.Log.WarnContext(ctx, "failed to remove a sandbox of a template", "build", x.ID, "sandbox", id, "err", err)
		}
	}
}

// Build returns a build with its log, which includes the lines of a running build.
func (b *Builder) Build(ctx context.Context, template, id string) (*brig.TemplateBuild, error) {
	b.mu.Lock()
	r := b.running[id]
	b.mu.Unlock()
	x, err := b.Store.GetBuild(ctx, brig.ActorFrom(ctx).Tenant, template, id)
	if err != nil {
		return nil, err
	}
	if r != nil && x.Status == brig.BuildRunning {
		x.Log = r.log.lines()
	}
	return x, nil
}

// List returns the tenant's templates, oldest first.
func (b *Builder) List(ctx context.Context) ([]*brig.BuiltTemplate, error) {
	return b.Store.BuiltTemplates(ctx, brig.ActorFrom(ctx).Tenant)
}

// Builds returns the builds of a template without their logs, newest first.
func (b *Builder) Builds(ctx context.Context, t *brig.BuiltTemplate) ([]*brig.TemplateBuild, error) {
	return b.Store.Builds(ctx, brig.BuildFilter{Tenant: t.Tenant, Template: t.ID})
}

// Find returns a template of the tenant by its ID or name, and the build of the tag in ref, or of
// DefaultTag. The build is nil if the tag does not exist.
func (b *Builder) Find(ctx context.Context, ref string) (*brig.BuiltTemplate, *brig.TemplateBuild, error) {
	name, tag, err := ParseName(ref)
	if err != nil {
		return nil, nil, errNoTemplate(ref)
	}
	t, err := b.Store.GetTemplate(ctx, brig.ActorFrom(ctx).Tenant, name)
	if brig.KindOf(err) == brig.NotFound {
		return nil, nil, errNoTemplate(ref)
	}
	if err != nil {
		return nil, nil, err
	}
	to, ok := t.Tags[orDefault(tag)]
	if !ok {
		return t, nil, nil
	}
	x, err := b.Store.GetBuild(ctx, t.Tenant, t.ID, to.Build)
	return t, x, err
}

// Create creates a sandbox from a build. The environment, the user and the directory of o override
// those of the build.
func (b *Builder) Create(ctx context.Context, x *brig.TemplateBuild, o brig.ForkSpec) (*brig.Sandbox, error) {
	o = withDefaults(x, o)
	made, err := b.Service.Fork(ctx, string(x.Sandbox), o)
	if brig.KindOf(err) == brig.NotFound {
		return nil, brig.Errorf(brig.FailedPrecondition, "the files of the template are gone, because its paused sandbox was removed").
			WithHint("build the template again")
	}
	if err != nil {
		return nil, err
	}
	b.background.Go(func() { b.countUse(x) })
	return made[0], nil
}

// withDefaults adds the defaults of a build to o.
func withDefaults(x *brig.TemplateBuild, o brig.ForkSpec) brig.ForkSpec {
	env := map[string]string{}
	for k, v := range x.Env {
		env[k] = v
	}
	for k, v := range o.Env {
		env[k] = v
	}
	o.Env = env
	if o.User == "" {
		o.User = x.User
	}
	if o.Dir == "" {
		o.Dir = x.Dir
	}
	return o
}

// countUse counts a sandbox of a template.
func (b *Builder) countUse(x *brig.TemplateBuild) {
	defer b.changes.lock(x.Tenant)()
	t, err := b.Store.GetTemplate(b.ctx, x.Tenant, x.Template)
	if err == nil {
		t.Uses++
		t.LastUsed = b.Now().UTC()
		err = b.Store.PutTemplate(b.ctx, t)
	}
	if err != nil && b.ctx.Err() == nil {
		b.Log.Warn("failed to count the use of a template", "template", x.Template, "err", err)
	}
}

// Remove removes a template with its builds. Sandboxes that were created from it remain.
func (b *Builder) Remove(ctx context.Context, ref string) error {
	defer b.changes.lock(brig.ActorFrom(ctx).Tenant)()
	t, _, err := b.Find(ctx, ref)
	if err != nil {
		return err
	}
	all, err := b.Builds(ctx, t)
	if err != nil {
		return err
	}
	for _, x := range all {
		b.mu.Lock()
		r := b.running[x.ID]
		b.mu.Unlock()
		if r != nil {
			r.cancel(brig.Errorf(brig.FailedPrecondition, "the template was removed during the build"))
		}
		b.removeSandboxes(ctx, x)
	}
	return b.Store.DeleteTemplate(ctx, t.Tenant, t.ID)
}

// tenantLocks holds a lock for each tenant, so that the calls of one do not wait for those of another.
type tenantLocks struct {
	mu sync.Mutex // guards the field below
	by map[string]*tenantLock
}

type tenantLock struct {
	sync.Mutex
	users int
}

// lock locks a tenant's lock, and returns the function that unlocks it.
func (l *tenantLocks) lock(tenant string) (unlock func()) {
	l.mu.Lock()
	if l.by == nil {
		l.by = map[string]*tenantLock{}
	}
	k := l.by[tenant]
	if k == nil {
		k = &tenantLock{}
		l.by[tenant] = k
	}
	k.users++
	l.mu.Unlock()
	k.Lock()
	return func() {
		k.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.by, tenant)
		}
	}
}

func errNoTemplate(ref string) *brig.Error {
	return brig.Errorf(brig.NotFound, "template '%s' not found", brig.Clip(ref, 200))
}

// newTemplateID returns a random ID in E2B's format.
func newTemplateID() string {
	return strings.ToLower(rand.Text())[:20]
}

// newBuildID returns a random UUID.
func newBuildID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
