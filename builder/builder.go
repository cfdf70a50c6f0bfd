package builder

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/keylock"
)

// Bounds of what a tenant can store, and of one build.
const (
	maxTemplates  = 100 // of a tenant
	maxBuilds     = 20  // of a template
	keptLogs      = 3   // of a template's builds
	maxConcurrent = 4   // running builds of a tenant
	maxTags       = 100 // of a template
	maxSteps      = 1000
	maxText       = 64 * brig.KiB // of a step's arguments
	maxCommand    = 16 * brig.KiB // of the start and the ready command
	maxEnvBytes   = 32 * brig.KiB // of all variables that a build sets
	buildTimeout  = time.Hour     // of one build
	removeTimeout = time.Minute   // of the removal of a sandbox
)

// Service is the part of the engine in which builds run.
type Service interface {
	SandboxService
	Gate
	GetImage(ctx context.Context, ref string) (*brig.Image, error)
	PullImage(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error)
}

// SandboxService is the part of brig.Service for the sandboxes of builds.
type SandboxService interface {
	Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error)
	Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error)
	Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error)
	Remove(ctx context.Context, name string) error
	Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error)
	Files(name string) brig.Files
	Processes(name string) brig.Processes
	// KeepPaused postpones the end of a paused sandbox, as a copy of it does.
	KeepPaused(ctx context.Context, tenant string, id brig.ID) error
}

// Gate admits the calls of tenants.
type Gate interface {
	// Authorize authorizes a call of one of brig.TemplateOps, and records it.
	Authorize(ctx context.Context, op brig.Op, name string, do func(brig.Tenant) error) error
	// CallLimits returns the limit range of the calls of a tenant.
	CallLimits(ctx context.Context, tenant string) (brig.LimitRange, error)
	// Uncounted returns a context whose calls do not count against the rate of the tenant.
	Uncounted(ctx context.Context) context.Context
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

// Builder builds templates and finds them. The context of each call carries the actor. Calls that
// change something authorize the actor and are audited; the caller authorizes the others.
type Builder struct {
	options    Options
	configured map[string]brig.Template
	uploads    *uploads
	ctx        context.Context // ends with Close
	stop       context.CancelCauseFunc
	changes    keylock.Mutex // by tenant, held while a template is read, changed and written
	discarded  chan struct{} // has a value after sandboxes were discarded

	mu         sync.Mutex            // guards the fields below
	active     map[string]*activeRun // by the ID of a build
	closed     bool
	background sync.WaitGroup // Add needs mu
}

// New returns a Builder. Builds that another process began have failed, because it no longer runs.
func New(ctx context.Context, o Options) (*Builder, error) {
	if o.MaxUploads <= 0 {
		o.MaxUploads = brig.GiB
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Builder{options: o, configured: map[string]brig.Template{}, discarded: make(chan struct{}, 1), active: map[string]*activeRun{}}
	for _, t := range o.Configured {
		b.configured[t.Name] = t
	}
	var err error
	if b.uploads, err = newUploads(o.Dir, o.MaxUploads, o.Now); err != nil {
		return nil, err
	}
	b.ctx, b.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	b.finishInterrupted(ctx)
	b.inBackground(b.removeDiscarded)
	return b, nil
}

// Close ends the running builds, which fail, and waits for them.
func (b *Builder) Close() {
	b.stop(brig.Errorf(brig.Unavailable, "the server stopped during the build"))
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.background.Wait()
}

// inBackground calls f in the background, unless the Builder is closed.
func (b *Builder) inBackground(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.background.Go(f)
	}
}

// finishInterrupted records that the builds of an earlier process have failed. The next start retries
// what fails.
func (b *Builder) finishInterrupted(ctx context.Context) {
	list, err := b.options.Store.Builds(ctx, brig.BuildFilter{Unfinished: true})
	if err != nil {
		b.options.Log.ErrorContext(ctx, "failed to list builds of templates", "err", err)
	}
	for _, x := range list {
		if x.Status != brig.BuildRunning {
			continue
		}
		full, err := b.options.Store.GetBuild(ctx, x.Tenant, x.Template, x.ID)
		if err == nil {
			full.Failure = &brig.BuildFailure{Step: stepBase, Message: "the server ended during the build"}
			full.Status, full.Finished = brig.BuildFailed, b.options.Now().UTC()
			discard(full)
			err = b.options.Store.PutBuild(ctx, full)
		}
		if err != nil {
			b.options.Log.ErrorContext(ctx, "failed to finish an interrupted build", "build", x.ID, "err", err)
		}
	}
}

// internal returns a context for calls of the builder itself, which depend neither on the rights of
// the caller nor on the rate of the tenant.
func (b *Builder) internal(ctx context.Context, tenant string) context.Context {
	actor := brig.Actor{Name: "template builder", Tenant: tenant, Role: brig.Member}
	return b.options.Service.Uncounted(brig.WithActor(ctx, actor))
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
	// FreeDisk is the disk space that the sandboxes should have beside that for the steps, as far as the server's
	// limits allow it.
	FreeDisk int64
}

// Request creates a build, which waits for Start.
func (b *Builder) Request(ctx context.Context, r Request) (t *brig.BuiltTemplate, x *brig.TemplateBuild, err error) {
	name, tag, err := ParseName(r.Name)
	if err != nil {
		return nil, nil, err
	}
	tags, err := checkTags(tag, r.Tags)
	if err != nil {
		return nil, nil, err
	}
	err = b.options.Service.Authorize(ctx, brig.OpRequestBuild, name, func(of brig.Tenant) error {
		if _, ok := b.configured[name]; ok {
			return brig.Errorf(brig.AlreadyExists, "the template %q belongs to the server's configuration", name).WithHint("choose another name")
		}
		bounds, err := b.options.Service.CallLimits(ctx, of.Name)
		if err != nil {
			return err
		}
		disk := bounds.Default.Disk + min(r.FreeDisk, bounds.Max.Disk-bounds.Default.Disk)
		limits, err := bounds.Fill(brig.Limits{CPUs: r.CPUs, Memory: r.Memory, Disk: disk})
		if err != nil {
			return err
		}
		unlock, err := b.changes.Lock(ctx, of.Name)
		if err != nil {
			return err
		}
		defer unlock()
		if t, err = b.findOrCreate(ctx, of.Name, name); err != nil {
			return err
		}
		if err := checkNumberOfTags(t, tags); err != nil {
			return err
		}
		if err := b.makeRoom(ctx, t); err != nil {
			return err
		}
		t.Builds++
		x = &brig.TemplateBuild{
			ID: uuid.NewString(), Template: t.ID, Tenant: t.Tenant, Status: brig.BuildWaiting, Limits: limits, Created: b.options.Now().UTC(),
			Actor: brig.ActorFrom(ctx).Name, Tags: tags,
		}
		return b.options.Store.PutTemplate(ctx, t, x)
	})
	return t, x, err
}

// findOrCreate returns the tenant's template with a name, or a new one, which is not stored yet.
func (b *Builder) findOrCreate(ctx context.Context, tenant, name string) (*brig.BuiltTemplate, error) {
	t, err := b.template(ctx, tenant, name)
	if brig.KindOf(err) != brig.NotFound {
		return t, err
	}
	all, err := b.list(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if len(all) >= maxTemplates {
		return nil, brig.Errorf(brig.RateLimited, "the tenant has %d templates, the maximum", maxTemplates).WithHint("remove one")
	}
	now := b.options.Now().UTC()
	return &brig.BuiltTemplate{ID: newTemplateID(), Tenant: tenant, Name: name, Created: now, Updated: now, Tags: map[string]brig.TemplateTag{}}, nil
}

// makeRoom deletes the oldest build of a template that nothing refers to and that has no sandboxes, if the template
// has as many as it may have.
func (b *Builder) makeRoom(ctx context.Context, t *brig.BuiltTemplate) error {
	all, err := b.options.Store.Builds(ctx, brig.BuildFilter{Tenant: t.Tenant, Template: t.ID})
	if err != nil || len(all) < maxBuilds {
		return err
	}
	for _, x := range slices.Backward(all) {
		if x.Status != brig.BuildRunning && len(tagsOf(t, x.ID)) == 0 && !hasSandboxes(x) {
			return b.options.Store.DeleteBuild(ctx, t.Tenant, t.ID, x.ID)
		}
	}
	return brig.Errorf(brig.RateLimited, "the template %q has %d builds, the maximum", t.Name, maxBuilds).WithHint("remove a tag, or wait until a build ends")
}

// dropOldLogs removes the logs of all but the newest builds of a template, because they take most of its
// space.
func (b *Builder) dropOldLogs(ctx context.Context, of *brig.TemplateBuild) {
	all, err := b.options.Store.Builds(ctx, brig.BuildFilter{Tenant: of.Tenant, Template: of.Template})
	for _, x := range all[min(len(all), keptLogs):] {
		if x.Status.Unfinished() || x.ID == of.ID { // its client has not read it yet
			continue
		}
		full, gerr := b.options.Store.GetBuild(ctx, x.Tenant, x.Template, x.ID)
		if gerr == nil && len(full.Log) > 0 {
			full.Log = nil
			gerr = b.options.Store.PutBuild(ctx, full)
		}
		err = errors.Join(err, gerr)
	}
	if err != nil && brig.KindOf(err) != brig.NotFound {
		b.options.Log.WarnContext(ctx, "failed to remove old logs of builds", "template", of.Template, "err", err)
	}
}

// activeBuild returns a build that runs, or nil.
func (b *Builder) activeBuild(id string) *activeRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active[id]
}

// forget removes a build from those that run.
func (b *Builder) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.active, id)
}

// Build returns a build with its log, which includes the lines of a running build.
func (b *Builder) Build(ctx context.Context, template, id string) (*brig.TemplateBuild, error) {
	tenant := brig.ActorFrom(ctx).Tenant
	x, err := b.options.Store.GetBuild(ctx, tenant, template, id)
	if err != nil || x.Status != brig.BuildRunning {
		return x, err
	}
	if r := b.activeBuild(id); r != nil {
		x.Log = r.log.lines()
		return x, nil
	}
	// It has just ended, or its result could not be recorded.
	if x, err = b.options.Store.GetBuild(ctx, tenant, template, id); err == nil && x.Status == brig.BuildRunning {
		x.Status, x.Failure = brig.BuildFailed, &brig.BuildFailure{Step: stepFinalize, Message: "the result of the build could not be recorded"}
	}
	return x, err
}

// List returns the tenant's templates, oldest first.
func (b *Builder) List(ctx context.Context) ([]*brig.BuiltTemplate, error) {
	return b.list(ctx, brig.ActorFrom(ctx).Tenant)
}

func (b *Builder) list(ctx context.Context, tenant string) ([]*brig.BuiltTemplate, error) {
	all, err := b.options.Store.BuiltTemplates(ctx, tenant)
	return slices.DeleteFunc(all, func(t *brig.BuiltTemplate) bool { return !t.Removed.IsZero() }), err
}

// NewestBuilds returns the newest build of each of the tenant's templates, by the ID of the template and
// without its log.
func (b *Builder) NewestBuilds(ctx context.Context) (map[string]*brig.TemplateBuild, error) {
	all, err := b.options.Store.Builds(ctx, brig.BuildFilter{Tenant: brig.ActorFrom(ctx).Tenant, Newest: true})
	out := map[string]*brig.TemplateBuild{}
	for _, x := range all {
		out[x.Template] = x
	}
	return out, err
}

// Builds returns the builds of a template without their logs, newest first.
func (b *Builder) Builds(ctx context.Context, t *brig.BuiltTemplate) ([]*brig.TemplateBuild, error) {
	return b.options.Store.Builds(ctx, brig.BuildFilter{Tenant: t.Tenant, Template: t.ID})
}

// Template returns the template of the tenant with the ID or the name in ref.
func (b *Builder) Template(ctx context.Context, ref string) (*brig.BuiltTemplate, error) {
	name, _, err := ParseName(ref)
	if err != nil {
		return nil, errNoTemplate(ref)
	}
	t, err := b.template(ctx, brig.ActorFrom(ctx).Tenant, name)
	if brig.KindOf(err) == brig.NotFound {
		return nil, errNoTemplate(ref)
	}
	return t, err
}

// template returns a tenant's template by ID or by name, unless it was removed.
func (b *Builder) template(ctx context.Context, tenant, ref string) (*brig.BuiltTemplate, error) {
	t, err := b.options.Store.GetTemplate(ctx, tenant, ref)
	if err == nil && !t.Removed.IsZero() {
		return nil, errNoTemplate(ref)
	}
	return t, err
}

// Find is like Template, and also returns the build of the tag in ref, or of DefaultTag, without its log. The
// build is nil if the tag does not exist.
func (b *Builder) Find(ctx context.Context, ref string) (*brig.BuiltTemplate, *brig.TemplateBuild, error) {
	t, err := b.Template(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	_, tag, _ := ParseName(ref)
	to, ok := t.Tags[orDefault(tag)]
	if !ok {
		return t, nil, nil
	}
	found, err := b.options.Store.Builds(ctx, brig.BuildFilter{Tenant: t.Tenant, Template: t.ID, ID: to.Build})
	if err != nil || len(found) == 0 {
		return t, nil, err
	}
	return t, found[0], nil
}

// Create creates a sandbox from the build that ref refers to. The environment, the user and the
// directory of o override those of the build.
func (b *Builder) Create(ctx context.Context, ref string, o brig.ForkSpec) (*brig.Sandbox, error) {
	o.BuildRights = false
	for retried := false; ; retried = true {
		t, x, err := b.Find(ctx, ref)
		if err != nil {
			return nil, err
		}
		if x == nil || x.Status != brig.BuildReady || x.Sandbox == "" {
			_, tag, _ := ParseName(ref)
			return nil, errNoTag(t, tag)
		}
		made, err := b.options.Service.Fork(ctx, string(x.Sandbox), withDefaults(x, o))
		switch {
		case brig.KindOf(err) == brig.NotFound && !retried: // another build may have replaced it
		case brig.KindOf(err) == brig.NotFound:
			return nil, errNoFiles(x.Template)
		case err != nil:
			return nil, err
		default:
			b.inBackground(func() { b.countUse(x) })
			return made[0], nil
		}
	}
}

// withDefaults adds the defaults of a build to o.
func withDefaults(x *brig.TemplateBuild, o brig.ForkSpec) brig.ForkSpec {
	env := map[string]string{}
	maps.Copy(env, x.Env)
	maps.Copy(env, o.Env)
	o.Env, o.User, o.Dir = env, cmp.Or(o.User, x.User), cmp.Or(o.Dir, x.Dir)
	return o
}

// countUse counts a sandbox of a template, and keeps the files of which its start command's sandbox is
// a copy, because other builds can begin with them.
func (b *Builder) countUse(x *brig.TemplateBuild) {
	unlock, err := b.changes.Lock(b.ctx, x.Tenant)
	if err != nil {
		return // the server stops
	}
	defer unlock()
	t, err := b.template(b.ctx, x.Tenant, x.Template)
	if err == nil {
		t.Uses++
		t.LastUsed = b.options.Now().UTC()
		err = b.options.Store.PutTemplate(b.ctx, t)
	}
	if err == nil && x.Files != x.Sandbox {
		err = b.options.Service.KeepPaused(b.ctx, x.Tenant, x.Files)
	}
	if err != nil && b.ctx.Err() == nil && brig.KindOf(err) != brig.NotFound {
		b.options.Log.Warn("failed to count the use of a template", "template", x.Template, "err", err)
	}
}

// Remove removes a template with its builds. Sandboxes that were created from it remain.
func (b *Builder) Remove(ctx context.Context, ref string) error {
	name, tag, err := ParseName(ref)
	if err != nil {
		return errNoTemplate(ref)
	}
	if tag != "" {
		return brig.InvalidField("template", "%q names one tag of a template", brig.Clip(ref, 200)).WithHint("give the name of the template, or remove the tag")
	}
	return b.options.Service.Authorize(ctx, brig.OpRemoveTemplate, name, func(brig.Tenant) error {
		t, builds, err := b.markRemoved(ctx, ref)
		if err != nil {
			return err
		}
		ctx := context.WithoutCancel(ctx) // the caller may not wait
		for _, x := range builds {
			if r := b.activeBuild(x.ID); r != nil {
				r.cancel(brig.Errorf(brig.FailedPrecondition, "the template was removed during the build"))
			}
			b.removeOf(ctx, x)
		}
		b.deleteRemoved(ctx, t.Tenant, t.ID)
		return nil
	})
}

func errNoFiles(template string) *brig.Error {
	return brig.Errorf(brig.FailedPrecondition, "the files of the template %s are gone, because its paused sandbox was removed", template).
		WithHint("build the template again")
}

func errNoTemplate(ref string) *brig.Error {
	return brig.Errorf(brig.NotFound, "template '%s' not found", brig.Clip(ref, 200))
}

// newTemplateID returns a random ID of 20 characters of a to z and 2 to 7.
func newTemplateID() string {
	return strings.ToLower(rand.Text())[:20]
}
