package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// Plan describes what a build does.
type Plan struct {
	// Image is the image that the build begins with, Template the template. Exactly one is set.
	Image, Template string
	// Username and Password are the credentials for the registry of Image.
	Username, Password string
	Steps              []Step
	// Force runs all steps, also those that an earlier build has run.
	Force bool
	// Start is a command that runs in every sandbox of the template. Ready is run repeatedly, until
	// it exits with 0; then the template is ready.
	Start, Ready string
}

// Step is one step of a build.
type Step struct {
	Kind StepKind
	Args []string
	// Files is the hash of the uploaded files of a Copy.
	Files string
	// Force runs the step and those after it, also if an earlier build has run them.
	Force bool
}

// StepKind is the kind of a step.
type StepKind string

// The kinds of steps, with their arguments.
const (
	Run     StepKind = "RUN"     // a command, and optionally its user
	Copy    StepKind = "COPY"    // source, destination, and optionally the owner and the mode
	Workdir StepKind = "WORKDIR" // a directory
	User    StepKind = "USER"    // a user
	Env     StepKind = "ENV"     // names and values, alternating
)

// Phases of a build in which it can fail, besides its steps.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

// labelBuild is a label of the sandboxes of a build: its ID.
const labelBuild = "brig.template-build"

// activeRun is a build that runs.
type activeRun struct {
	b      *Builder
	build  *brig.TemplateBuild
	plan   Plan
	from   *brig.TemplateBuild // the build of another template with which it begins; nil for images
	bounds brig.LimitRange     // of the tenant
	log    *buildLog
	cancel context.CancelCauseFunc
	state  state
	step   string // the current phase
}

// state is what steps change for the steps after them.
type state struct {
	env  map[string]string
	user account
	dir  string
}

// Start starts a build that Request has created.
func (b *Builder) Start(ctx context.Context, template, id string, p Plan) error {
	if err := p.check(); err != nil {
		return err
	}
	return b.options.Service.Authorize(ctx, brig.OpStartBuild, id, func(of brig.Tenant) error {
		bounds, err := b.options.Service.CallLimits(ctx, of.Name)
		if err != nil {
			return err
		}
		unlock, err := b.changes.Lock(ctx, of.Name)
		if err != nil {
			return err
		}
		defer unlock()
		if _, err := b.template(ctx, of.Name, template); err != nil {
			return err
		}
		x, err := b.options.Store.GetBuild(ctx, of.Name, template, id)
		if err != nil {
			return err
		}
		if x.Status != brig.BuildWaiting {
			return brig.Errorf(brig.FailedPrecondition, "the build is %s", x.Status).WithHint("request another build")
		}
		if err := b.checkConcurrency(of.Name); err != nil {
			return err
		}
		x.Status, x.Started, x.Start, x.Ready = brig.BuildRunning, b.options.Now().UTC(), p.Start, p.Ready
		runCtx, cancel := context.WithCancelCause(brig.WithActor(b.ctx, brig.ActorFrom(ctx)))
		r := &activeRun{
			b: b, build: x, plan: p, bounds: bounds, log: newBuildLog(b.options.Now), cancel: cancel, step: stepBase,
		}
		b.mu.Lock()
		b.active[id] = r // before a client can see that the build runs
		b.mu.Unlock()
		if err := b.options.Store.PutBuild(ctx, x); err != nil {
			b.forget(id)
			cancel(nil)
			return err
		}
		b.inBackground(func() {
			defer cancel(nil)
			r.run(b.options.Service.Uncounted(runCtx))
		})
		return nil
	})
}

// checkConcurrency checks that a tenant can run one more build. The caller holds the tenant's lock.
func (b *Builder) checkConcurrency(tenant string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, r := range b.active {
		if r.build.Tenant == tenant {
			n++
		}
	}
	if n >= maxConcurrent {
		return brig.Errorf(brig.RateLimited, "%d builds of the tenant are running, the maximum", n).WithHint("try again when one has ended")
	}
	return nil
}

// run runs the build and records its result.
func (r *activeRun) run(ctx context.Context) {
	timed, cancel := context.WithTimeoutCause(ctx, r.timeout(), failf("the build takes longer than %v", r.timeout()))
	defer cancel()
	err := r.runPhases(timed)
	if cause := context.Cause(timed); err != nil && cause != nil {
		err = cause
	}
	r.finish(context.WithoutCancel(ctx), err)
}

// timeout returns the time limit of the build. Its sandboxes have a lease of the same duration.
func (r *activeRun) timeout() time.Duration { return min(buildTimeout, r.bounds.MaxTTL) }

func (r *activeRun) runPhases(ctx context.Context) error {
	done, err := r.begin(ctx)
	if err != nil {
		return err
	}
	for n, s := range r.plan.Steps {
		r.step = strconv.Itoa(n + 1)
		if n < done {
			r.log.add("info", r.step, fmt.Sprintf("[%d/%d] CACHED %s", n+1, len(r.plan.Steps), describe(s)))
			continue
		}
		if err := r.checkActor(ctx); err != nil {
			return err
		}
		r.log.add("info", r.step, fmt.Sprintf("[%d/%d] %s", n+1, len(r.plan.Steps), describe(s)))
		if err := r.runStep(ctx, s); err != nil {
			return err
		}
	}
	r.step = stepFinalize
	if err := r.checkActor(ctx); err != nil {
		return err
	}
	if err := r.finalize(ctx); err != nil {
		return err
	}
	return r.checkActor(ctx)
}

// checkActor returns an error if the build has ended, or the key that started it is no longer valid.
func (r *activeRun) checkActor(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	actor := brig.ActorFrom(ctx)
	if r.b.options.Actor == nil || actor.Key == "" {
		return nil
	}
	now, err := r.b.options.Actor(ctx, actor.Key)
	if err == nil && (now.Tenant != actor.Tenant || !now.Founded.Equal(actor.Founded) || now.Role < actor.Role) {
		err = brig.Errorf(brig.Unauthenticated, "the key that started the build is no longer valid")
	}
	return err
}

// record stores the sandboxes of the build, so that the next server removes them if this one ends.
func (r *activeRun) record(ctx context.Context) error {
	return r.b.options.Store.PutBuild(ctx, r.build)
}

// begin creates the sandbox of the build. It returns the number of steps that an earlier build has run. If the build
// begins with another template, which was built again in the meantime, begin uses the new build of it.
func (r *activeRun) begin(ctx context.Context) (done int, err error) {
	if err := r.findBase(ctx); err != nil {
		return 0, err
	}
	made, digest, done, err := r.create(ctx)
	if before := r.from; err != nil && before != nil {
		if ferr := r.findBase(ctx); ferr != nil {
			return 0, ferr
		}
		if r.from.ID != before.ID {
			made, digest, done, err = r.create(ctx)
		}
	}
	if err != nil {
		return 0, err
	}
	if all := r.digests(digest); len(all) > 0 {
		r.build.Digest = all[len(all)-1]
	}
	r.build.Files, r.build.Sandbox = made.ID, made.ID
	return done, r.record(ctx)
}

// create creates the sandbox of the build from its base or from an earlier build, and returns the digest of the base.
func (r *activeRun) create(ctx context.Context) (made *brig.Sandbox, digest string, done int, err error) {
	if digest, err = r.baseDigest(ctx); err != nil {
		return nil, "", 0, err
	}
	if made, done, err = r.restoreCached(ctx, r.digests(digest)); err != nil || made != nil {
		return made, digest, done, err
	}
	if made, err = r.createBase(ctx); err == nil && r.from == nil && made.Digest != "" {
		digest = r.describeBase(made.Digest) // the image may have changed since
	}
	return made, digest, 0, err
}

// findBase finds the build of another template with which the build begins, if it does. The build takes its
// start and its ready command if it has neither.
func (r *activeRun) findBase(ctx context.Context) error {
	if _, ok := r.configured(); r.plan.Template == "" || ok {
		return nil
	}
	t, from, err := r.b.Find(ctx, r.plan.Template)
	if err != nil {
		return err
	}
	if from == nil || from.Status != brig.BuildReady || from.Files == "" {
		_, tag, _ := ParseName(r.plan.Template)
		return errNoTag(t, tag)
	}
	r.from = from
	r.build.Start, r.build.Ready = r.plan.Start, r.plan.Ready
	if r.build.Start == "" && r.build.Ready == "" {
		r.build.Start, r.build.Ready = from.Start, from.Ready
	}
	return nil
}

// createBase creates the sandbox of the build with the files of its base.
func (r *activeRun) createBase(ctx context.Context) (*brig.Sandbox, error) {
	if r.from != nil {
		r.log.add("info", stepBase, "FROM TEMPLATE "+brig.Clip(r.plan.Template, 200))
		r.state = stateAfter(r.from)
		made, err := r.copyFilesOf(ctx, r.from)
		if brig.KindOf(err) == brig.NotFound {
			err = errNoFiles(brig.Clip(r.plan.Template, 200))
		}
		return made, err
	}
	r.state = state{env: map[string]string{}, user: accountOf("user"), dir: defaultDir}
	return r.createFromImage(ctx)
}

// labels returns the labels of the build's sandboxes.
func (r *activeRun) labels() map[string]string { return map[string]string{labelBuild: r.build.ID} }

// createFromImage creates the sandbox from an image, or from a template of the configuration.
func (r *activeRun) createFromImage(ctx context.Context) (*brig.Sandbox, error) {
	spec := brig.Spec{
		Labels: r.labels(), TTL: r.timeout(), Egress: r.b.options.Egress, Limits: r.build.Limits, User: "root", Dir: "/",
		FixedLease: true, PausableIfSupported: true, BuildRights: true,
		PauseAtEnd: true, PauseFilesOnly: true, // if a caller resumes the finished sandbox
	}
	if t, ok := r.configured(); ok {
		spec.Template = t.Name
		r.log.add("info", stepBase, "FROM TEMPLATE "+t.Name)
		maps.Copy(r.state.env, t.Env)
		if t.User != "" {
			r.state.user = accountOf(t.User)
		}
		r.state.dir = cmp.Or(t.Dir, r.state.dir)
		made, err := r.b.options.Service.Create(ctx, spec)
		if err == nil {
			for _, note := range made.Notes { // for example that another image stands in for that of the template
				r.log.add("warn", stepBase, note)
			}
		}
		return made, err
	}
	spec.Image = r.plan.Image
	r.log.add("info", stepBase, "FROM "+brig.Clip(spec.Image, 200))
	if err := r.pull(ctx); err != nil {
		return nil, err
	}
	return r.b.options.Service.Create(ctx, spec)
}

// e2bImage is the image that E2B's clients name for a template without another base.
const e2bImage = "e2bdev/base"

// configured returns the template of the configuration that the build begins with, if it does.
func (r *activeRun) configured() (brig.Template, bool) {
	name, tag := "base", ""
	if r.plan.Template != "" {
		var err error
		if name, tag, err = ParseName(r.plan.Template); err != nil {
			return brig.Template{}, false
		}
	} else if r.plan.Image != e2bImage && r.plan.Image != e2bImage+":latest" {
		return brig.Template{}, false
	}
	t, ok := r.b.configured[name]
	return t, ok && orDefault(tag) == DefaultTag
}

// pull pulls the image if the build has credentials for its registry. Other images are pulled at the
// creation of the sandbox, if the server allows that.
func (r *activeRun) pull(ctx context.Context) error {
	if r.plan.Username == "" && r.plan.Password == "" {
		return nil
	}
	_, err := r.b.options.Service.PullImage(ctx, brig.ImagePull{Ref: r.plan.Image, Username: r.plan.Username, Password: r.plan.Password},
		func(p brig.Progress) { r.log.add("info", stepBase, p.Step) })
	return err
}

// finish records the result of the build.
func (r *activeRun) finish(ctx context.Context, err error) {
	defer r.b.forget(r.build.ID)
	r.build.Finished = r.b.options.Now().UTC()
	if err == nil {
		r.log.add("info", stepFinalize, "Build finished")
		r.build.Log = r.log.lines()
		err = r.b.underLock(ctx, r.build.Tenant, func(ctx context.Context) error {
			defer r.b.dropOldLogs(ctx, r.build)
			return r.b.makeReady(ctx, r.build)
		})
	}
	if err != nil {
		r.fail(ctx, err)
	}
}

// fail removes the sandboxes of the build, and records that it has failed.
func (r *activeRun) fail(ctx context.Context, cause error) {
	x := r.build
	x.Status, x.Failure = brig.BuildFailed, &brig.BuildFailure{Step: r.step, Message: messageOf(cause)}
	r.log.add("error", r.step, x.Failure.Message)
	x.Log = r.log.lines()
	if _, ok := errors.AsType[*stepError](cause); !ok && brig.KindOf(cause) == brig.Internal {
		r.b.options.Log.WarnContext(ctx, "a build failed", "build", x.ID, "err", cause)
	}
	discard(x)
	x.Discarded = r.b.removeSandboxes(ctx, x)
	err := r.b.underLock(ctx, x.Tenant, func(ctx context.Context) error {
		defer r.b.dropOldLogs(ctx, x)
		return r.record(ctx)
	})
	if err != nil && brig.KindOf(err) != brig.NotFound { // the template was not removed
		r.b.options.Log.ErrorContext(ctx, "failed to record the result of a build", "build", x.ID, "err", err)
	}
	r.b.deleteRemoved(ctx, x.Tenant, x.Template)
}

// messageOf returns the message of a failure for the user.
func messageOf(err error) string {
	if f, ok := errors.AsType[*stepError](err); ok {
		return f.message
	}
	e := brig.AsError(err)
	if e.Hint != "" {
		return e.Message + " (" + e.Hint + ")"
	}
	return e.Message
}

// check checks the plan before the build starts.
func (p *Plan) check() error {
	switch {
	case (p.Image == "") == (p.Template == ""):
		return brig.InvalidField("fromImage", "give either fromImage or fromTemplate")
	case len(p.Steps) > maxSteps:
		return brig.InvalidField("steps", "there are more than %d", maxSteps)
	case len(p.Start) > maxCommand:
		return brig.InvalidField("startCmd", "it is longer than %d bytes", maxCommand)
	case len(p.Ready) > maxCommand:
		return brig.InvalidField("readyCmd", "it is longer than %d bytes", maxCommand)
	}
	for i, s := range p.Steps {
		if err := s.check(); err != nil {
			e := brig.AsError(err)
			e.Field = fmt.Sprintf("steps[%d]%s", i, e.Field)
			return e
		}
	}
	return nil
}
