package builder

import (
	"context"
	"errors"
	"fmt"
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

// running is a build that runs.
type running struct {
	*Builder
	build  *brig.TemplateBuild
	plan   Plan
	log    *buildLog
	cancel context.CancelCauseFunc
	state  state
	step   string // the current phase
	box    string // the ID of the sandbox in which steps run; empty before
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
	actor := brig.ActorFrom(ctx)
	defer b.changes.lock(actor.Tenant)()
	x, err := b.Store.GetBuild(ctx, actor.Tenant, template, id)
	if err != nil {
		return err
	}
	if x.Status != brig.BuildWaiting {
		return brig.Errorf(brig.FailedPrecondition, "the build is %s", x.Status).WithHint("request another build")
	}
	unfinished, err := b.Store.Builds(ctx, brig.BuildFilter{Tenant: actor.Tenant, Unfinished: true})
	if err != nil {
		return err
	}
	active := 0
	for _, u := range unfinished {
		if u.Status == brig.BuildRunning {
			active++
		}
	}
	if active >= maxConcurrent {
		return brig.Errorf(brig.RateLimited, "%d builds of the tenant are running, the maximum", active).WithHint("try again when one has ended")
	}
	x.Status, x.Started, x.Start, x.Ready = brig.BuildRunning, b.Now().UTC(), p.Start, p.Ready
	if err := b.Store.PutBuild(ctx, x); err != nil {
		return err
	}
	runCtx, cancel := context.WithCancelCause(brig.WithActor(b.ctx, actor))
	r := &running{Builder: b, build: x, plan: p, log: newBuildLog(b.Now), cancel: cancel, step: stepBase}
	b.mu.Lock()
	b.running[id] = r
	b.mu.Unlock()
	b.background.Go(func() {
		defer cancel(nil)
		r.run(runCtx)
	})
	return nil
}

// run runs the build and records its result.
func (r *running) run(ctx context.Context) {
	timed, cancel := context.WithTimeoutCause(ctx, buildTimeout, brig.Errorf(brig.FailedPrecondition, "the build takes longer than %v", buildTimeout))
	defer cancel()
	err := r.runPhases(timed)
	if cause := context.Cause(timed); err != nil && cause != nil {
		err = cause
	}
	r.finish(context.WithoutCancel(ctx), err)
}

func (r *running) runPhases(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if r.box != "" { // the build did not keep it
			r.removeSandbox(ctx, r.box)
		}
	}()
	for n, s := range r.plan.Steps {
		r.step = strconv.Itoa(n + 1)
		if err := r.checkActor(ctx); err != nil {
			return err
		}
		r.log.add("info", r.step, fmt.Sprintf("[%d/%d] %s", n+1, len(r.plan.Steps), describe(s)))
		if err := r.runStep(ctx, s); err != nil {
			return err
		}
	}
	r.step = stepFinalize
	return r.finalize(ctx)
}

// checkActor returns an error if the key that started the build is no longer valid.
func (r *running) checkActor(ctx context.Context) error {
	actor := brig.ActorFrom(ctx)
	if r.Options.Actor == nil || actor.Key == "" {
		return nil
	}
	now, err := r.Options.Actor(ctx, actor.Key)
	if err == nil && now.Tenant != actor.Tenant {
		err = brig.Errorf(brig.Unauthenticated, "the key is not valid")
	}
	return err
}

// begin creates the sandbox of the build.
func (r *running) begin(ctx context.Context) error {
	labels := map[string]string{labelBuild: r.build.ID}
	ttl := min(buildTimeout, r.LimitRange.MaxTTL)
	r.state = state{env: map[string]string{}, user: account{name: "user", run: "user"}, dir: defaultDir}
	var made *brig.Sandbox
	_, fromConfigured := r.configured[r.base()]
	if r.plan.Template != "" && !fromConfigured {
		t, from, err := r.Find(ctx, r.plan.Template)
		if err != nil {
			return err
		}
		if from == nil || from.Files == "" {
			_, tag, _ := ParseName(r.plan.Template)
			return ErrNoTag(t, tag)
		}
		r.log.add("info", stepBase, "FROM TEMPLATE "+t.Name)
		r.state = state{env: withDefaults(from, brig.ForkSpec{}).Env, user: accountOf(from.User), dir: from.Dir}
		copies, err := r.Service.Fork(ctx, string(from.Files), brig.ForkSpec{
			Labels: labels, TTL: ttl, Egress: &r.Egress, Limits: r.build.Limits, User: "root", Dir: "/", BuildRights: true, AtEnd: &brig.AtEnd{},
		})
		if err != nil {
			return err
		}
		made = copies[0]
	} else {
		spec := brig.Spec{
			Labels: labels, TTL: ttl, Egress: r.Egress, Limits: r.build.Limits, User: "root", Dir: "/",
			FixedLease: true, PausableIfSupported: true, BuildRights: true,
		}
		if fromConfigured {
			spec.Template = r.base()
			r.log.add("info", stepBase, "FROM TEMPLATE "+spec.Template)
		} else {
			spec.Image = r.plan.Image
			r.log.add("info", stepBase, "FROM "+brig.Clip(spec.Image, 200))
			if err := r.pull(ctx); err != nil {
				return err
			}
		}
		var err error
		if made, err = r.Service.Create(ctx, spec); err != nil {
			return err
		}
		if fromConfigured {
			r.useConfigured(r.configured[spec.Template])
		}
	}
	r.box = string(made.ID)
	return nil
}

// e2bImage is the image that E2B's clients name for a template without another base.
const e2bImage = "e2bdev/base"

// base returns the name of the template that the build begins with, or the image's name.
func (r *running) base() string {
	switch r.plan.Image {
	case "":
		name, _, _ := ParseName(r.plan.Template)
		return name
	case e2bImage, e2bImage + ":latest":
		return "base"
	}
	return r.plan.Image
}

// useConfigured sets the defaults of a configured template.
func (r *running) useConfigured(t brig.Template) {
	for k, v := range t.Env {
		r.state.env[k] = v
	}
	if t.User != "" {
		r.state.user = accountOf(t.User)
	}
	if t.Dir != "" {
		r.state.dir = t.Dir
	}
}

// pull pulls the image if the build has credentials for its registry. Other images are pulled at the
// creation of the sandbox, if the server allows that.
func (r *running) pull(ctx context.Context) error {
	if r.plan.Username == "" && r.plan.Password == "" {
		return nil
	}
	_, err := r.Service.PullImage(ctx, brig.ImagePull{Ref: r.plan.Image, Username: r.plan.Username, Password: r.plan.Password},
		func(p brig.Progress) { r.log.add("info", stepBase, p.Step) })
	return err
}

// finish records the result of the build.
func (r *running) finish(ctx context.Context, err error) {
	now := r.Now().UTC()
	defer r.changes.lock(r.build.Tenant)()
	defer func() {
		r.mu.Lock()
		delete(r.running, r.build.ID)
		r.mu.Unlock()
	}()
	x := r.build
	x.Finished = now
	if err == nil {
		x.Status = brig.BuildReady
		r.log.add("info", stepFinalize, "Build finished")
	} else {
		x.Status, x.Failure = brig.BuildFailed, &brig.BuildFailure{Step: r.step, Message: messageOf(err)}
		r.log.add("error", r.step, x.Failure.Message)
		r.removeSandboxes(ctx, x)
		x.Files, x.Sandbox = "", ""
	}
	x.Log = r.log.lines()
	if perr := r.Store.PutBuild(ctx, x); perr != nil {
		r.Log.ErrorContext(ctx, "failed to record the result of a build", "build", x.ID, "err", perr)
		r.removeSandboxes(ctx, x) // nothing refers to them
		return
	}
	if err != nil {
		if brig.KindOf(err) == brig.Internal {
			r.Log.WarnContext(ctx, "a build failed", "build", x.ID, "err", err)
		}
		return
	}
	t, err := r.Store.GetTemplate(ctx, x.Tenant, x.Template)
	if err == nil {
		err = r.setTags(ctx, t, x.ID, x.Tags)
	}
	if err != nil {
		r.Log.ErrorContext(ctx, "failed to tag a build", "build", x.ID, "err", err)
	}
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

// removeSandbox removes a sandbox that the build no longer needs. If that fails, the sandbox ends
// with its lease.
func (r *running) removeSandbox(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := r.Service.Remove(ctx, id); err != nil && brig.KindOf(err) != brig.NotFound {
		r.Log.WarnContext(ctx, "failed to remove a sandbox of a build", "build", r.build.ID, "sandbox", id, "err", err)
	}
}

// check checks the plan before the build starts.
func (p *Plan) check() error {
	switch {
	case (p.Image == "") == (p.Template == ""):
		return brig.InvalidField("fromImage", "give either fromImage or fromTemplate")
	case len(p.Steps) > maxSteps:
		return brig.InvalidField("steps", "there are more than %d", maxSteps)
	case len(p.Start) > maxText:
		return brig.InvalidField("startCmd", "it is longer than %d bytes", maxText)
	case len(p.Ready) > maxText:
		return brig.InvalidField("readyCmd", "it is longer than %d bytes", maxText)
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
