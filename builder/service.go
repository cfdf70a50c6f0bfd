package builder

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

var _ brig.TemplateService = (*Builder)(nil)

// Intervals at which FollowTemplateBuild looks for new lines of a build that runs, and for the start of one
// that waits for it.
const (
	followInterval  = 200 * time.Millisecond
	waitingInterval = 2 * time.Second
)

// BuildTemplate implements brig.TemplateService.
func (b *Builder) BuildTemplate(ctx context.Context, s brig.BuildSpec) (*brig.TemplateBuild, error) {
	p, err := b.planOf(s)
	if err != nil {
		return nil, err
	}
	t, x, err := b.Request(ctx, Request{Name: s.Name, Tags: s.Tags, CPUs: s.CPUs, Memory: s.Memory})
	if err != nil {
		return nil, err
	}
	if err = b.checkFiles(ctx, s.Steps); err == nil {
		err = b.Start(ctx, t.ID, x.ID, p)
	}
	if err != nil {
		b.discardWaiting(ctx, t, x)
		return nil, err
	}
	return b.Build(ctx, t.ID, x.ID)
}

// checkFiles checks that the tenant has uploaded the files of the copy steps.
func (b *Builder) checkFiles(ctx context.Context, steps []brig.BuildStep) error {
	for i, s := range steps {
		if s.Kind != brig.BuildCopy {
			continue
		}
		switch has, err := b.HasFiles(ctx, s.Digest); {
		case err != nil:
			return err
		case !has:
			return brig.InvalidField(fmt.Sprintf("steps[%d].digest", i), "the files with this digest were not uploaded").
				WithHint("upload them, and start the build again")
		}
	}
	return nil
}

// discardWaiting removes a build that could not be started, and its template if it has no other build.
func (b *Builder) discardWaiting(ctx context.Context, t *brig.BuiltTemplate, x *brig.TemplateBuild) {
	ctx = context.WithoutCancel(ctx)
	unlock, err := b.changes.Lock(ctx, t.Tenant)
	if err != nil {
		return // ctx does not end
	}
	defer unlock()
	var left []*brig.TemplateBuild
	if err = b.options.Store.DeleteBuild(ctx, x.Tenant, x.Template, x.ID); err == nil {
		left, err = b.Builds(ctx, t)
	}
	if err == nil && len(left) == 0 {
		err = b.options.Store.DeleteTemplate(ctx, t.Tenant, t.ID)
	}
	if err != nil && brig.KindOf(err) != brig.NotFound { // the template makes room for another build later
		b.options.Log.WarnContext(ctx, "failed to remove a build that was not started", "build", x.ID, "err", err)
	}
}

// Maximum lengths of the bases of a build.
const (
	maxImage    = 512
	maxTemplate = maxName + 1 + maxTag
)

// planOf converts the description of a build. The fields in its errors are those of brig.BuildSpec in
// requests.
func (b *Builder) planOf(s brig.BuildSpec) (Plan, error) {
	p := Plan{Image: s.Image, Template: s.Template, Username: s.Username, Password: s.Password, Force: s.NoCache, Start: s.Start, Ready: s.Ready}
	if err := b.checkBase(s); err != nil {
		return p, err
	}
	for field, command := range map[string]string{"start": s.Start, "ready": s.Ready} {
		if strings.ContainsRune(command, 0) {
			return p, brig.InvalidField(field, "it contains a NUL character")
		}
	}
	for i, step := range s.Steps {
		at := fmt.Sprintf("steps[%d].", i)
		out, err := stepOf(step)
		if err != nil {
			return p, inField(err, at)
		}
		if err := out.check(); err != nil {
			return p, inField(renamed(err, map[string]string{".type": "type", ".filesHash": "digest", ".args": argsField(step, err)}), at)
		}
		p.Steps = append(p.Steps, out)
	}
	return p, renamed(p.check(), map[string]string{"startCmd": "start", "readyCmd": "ready"})
}

// checkBase checks the base of a build.
func (b *Builder) checkBase(s brig.BuildSpec) error {
	switch {
	case (s.Image == "") == (s.Template == ""):
		return brig.InvalidField("image", "give either image or template")
	case len(s.Image) > maxImage:
		return brig.InvalidField("image", "it is longer than %d bytes", maxImage)
	case len(s.Template) > maxTemplate:
		return brig.InvalidField("template", "it is longer than %d bytes", maxTemplate)
	}
	if _, ok := b.configured[s.Template]; ok || s.Template == "" {
		return nil
	}
	_, _, err := ParseName(s.Template)
	return renamed(err, map[string]string{"name": "template", "tags": "template"})
}

// stepOf converts a step. It rejects fields that the step does not have.
func stepOf(s brig.BuildStep) (Step, error) {
	out := Step{Files: s.Digest, Force: s.NoCache}
	fields := map[string]string{
		"command": s.Command, "user": s.User, "digest": s.Digest, "source": s.Source, "destination": s.Destination, "owner": s.Owner, "mode": s.Mode, "cwd": s.Dir,
	}
	var required, optional []string
	switch s.Kind {
	case brig.BuildRun:
		required, optional = []string{"command"}, []string{"user"}
		out.Kind, out.Args = Run, []string{s.Command}
		if s.User != "" {
			out.Args = append(out.Args, s.User)
		}
	case brig.BuildCopy:
		required, optional = []string{"digest", "source", "destination"}, []string{"owner", "mode"}
		out.Kind, out.Args = Copy, []string{s.Source, s.Destination, s.Owner, s.Mode}
		if n := len(s.Mode); n != 0 && n != 3 && n != 4 {
			return out, brig.InvalidField("mode", "it has not 3 or 4 digits").WithHint("for example 0755")
		}
	case brig.BuildWorkdir:
		out.Kind, out.Args, required = Workdir, []string{s.Dir}, []string{"cwd"}
	case brig.BuildUser:
		out.Kind, out.Args, required = User, []string{s.User}, []string{"user"}
	case brig.BuildEnv:
		out.Kind = Env
		if len(s.Env) == 0 || len(s.Env) > maxEnv {
			return out, brig.InvalidField("env", "a step sets 1 to %d variables", maxEnv)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Env)) {
			out.Args = append(out.Args, name, s.Env[name])
		}
		if err := brig.CheckEnv("env", s.Env); err != nil {
			return out, err
		}
	default:
		return out, brig.InvalidField("type", "there is no step %q", brig.Clip(string(s.Kind), 40)).WithHint("use run, copy, env, workdir or user")
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		switch needed := slices.Contains(required, field); {
		case needed && fields[field] == "":
			return out, brig.InvalidField(field, "a step of the type %s needs it", s.Kind)
		case !needed && fields[field] != "" && !slices.Contains(optional, field):
			return out, brig.InvalidField(field, "a step of the type %s does not have it", s.Kind)
		}
	}
	if s.Kind != brig.BuildEnv && len(s.Env) > 0 {
		return out, brig.InvalidField("env", "a step of the type %s does not have it", s.Kind)
	}
	return out, nil
}

// argsField returns the field of a step whose value Step.check rejected.
func argsField(s brig.BuildStep, err error) string {
	switch message := brig.AsError(err).Message; {
	case s.Kind == brig.BuildCopy && strings.HasSuffix(message, "is not a mode"):
		return "mode"
	case s.Kind == brig.BuildCopy && strings.HasSuffix(message, "is not an owner"):
		return "owner"
	}
	return map[brig.BuildStepKind]string{
		brig.BuildRun: "command", brig.BuildCopy: "source", brig.BuildEnv: "env", brig.BuildWorkdir: "cwd", brig.BuildUser: "user",
	}[s.Kind]
}

// renamed returns an error with another name of its field.
func renamed(err error, names map[string]string) error {
	if err == nil {
		return nil
	}
	e := *brig.AsError(err)
	e.Field = cmp.Or(names[e.Field], e.Field)
	return &e
}

// inField adds a prefix to the field of an error.
func inField(err error, prefix string) error {
	e := *brig.AsError(err)
	e.Field = prefix + e.Field
	return &e
}

// GetTemplateBuild implements brig.TemplateService.
func (b *Builder) GetTemplateBuild(ctx context.Context, template, id string) (x *brig.TemplateBuild, err error) {
	err = b.options.Service.Authorize(ctx, brig.OpGetBuild, brig.Clip(id, 200), func(brig.Tenant) error {
		x, err = b.buildOf(ctx, template, id)
		return err
	})
	return x, err
}

// buildOf returns a build of the template with the name or the ID in ref.
func (b *Builder) buildOf(ctx context.Context, ref, id string) (*brig.TemplateBuild, error) {
	t, err := b.Template(ctx, ref)
	if err != nil {
		return nil, err
	}
	x, err := b.Build(ctx, t.ID, id)
	if brig.KindOf(err) == brig.NotFound {
		err = brig.Errorf(brig.NotFound, "template %q has no build %q", t.Name, brig.Clip(id, 80))
	}
	return x, err
}

// FollowTemplateBuild implements brig.TemplateService. It reads the log of a running build from memory, so
// that any number of followers does not load the store.
func (b *Builder) FollowTemplateBuild(ctx context.Context, template, id string, skip int, on func(brig.BuildLine) error) (*brig.TemplateBuild, error) {
	x, err := b.GetTemplateBuild(ctx, template, id)
	for err == nil {
		for ; skip < len(x.Log); skip++ {
			if err := on(x.Log[skip]); err != nil {
				return nil, err
			}
		}
		if !x.Status.Unfinished() {
			return x, nil
		}
		interval := followInterval
		if x.Status == brig.BuildWaiting {
			interval = waitingInterval
		}
		select {
		case <-ctx.Done():
			return nil, brig.AsError(ctx.Err())
		case <-time.After(interval):
		}
		if r := b.activeBuild(x.ID); r != nil {
			x.Status, x.Log = brig.BuildRunning, r.log.lines()
			continue
		}
		x, err = b.Build(ctx, x.Template, x.ID)
	}
	return nil, err
}

// CancelTemplateBuild implements brig.TemplateService.
func (b *Builder) CancelTemplateBuild(ctx context.Context, template, id string) error {
	return b.options.Service.Authorize(ctx, brig.OpCancelBuild, brig.Clip(id, 200), func(brig.Tenant) error {
		x, err := b.buildOf(ctx, template, id)
		if err != nil {
			return err
		}
		r := b.activeBuild(x.ID)
		if r == nil {
			return brig.Errorf(brig.FailedPrecondition, "the build is not running").WithHint("its status is %s", x.Status)
		}
		r.cancel(brig.Errorf(brig.Canceled, "the build was canceled"))
		return nil
	})
}

// HasTemplateFiles implements brig.TemplateService.
func (b *Builder) HasTemplateFiles(ctx context.Context, digest string) (has bool, err error) {
	err = b.options.Service.Authorize(ctx, brig.OpGetBuild, brig.Clip(digest, 200), func(brig.Tenant) error {
		has, err = b.HasFiles(ctx, digest)
		return renamed(err, map[string]string{"hash": "digest"})
	})
	return has, err
}

// PutTemplateFiles implements brig.TemplateService.
func (b *Builder) PutTemplateFiles(ctx context.Context, digest string, size int64, r io.Reader) error {
	if size < 0 {
		return brig.Errorf(brig.InvalidArgument, "the size of the archive is not known").WithHint("send the header Content-Length")
	}
	return renamed(b.PutFiles(ctx, digest, size, r), map[string]string{"hash": "digest"})
}

// GetTemplate implements brig.TemplateService.
func (b *Builder) GetTemplate(ctx context.Context, template string) (d *brig.TemplateDetails, err error) {
	err = b.options.Service.Authorize(ctx, brig.OpGetTemplate, brig.Clip(template, 200), func(brig.Tenant) error {
		t, err := b.Template(ctx, template)
		if err != nil {
			return err
		}
		d = &brig.TemplateDetails{BuiltTemplate: *t}
		d.Builds, err = b.Builds(ctx, t)
		return err
	})
	return d, err
}

// TagTemplate implements brig.TemplateService.
func (b *Builder) TagTemplate(ctx context.Context, template, from, tag string) error {
	if err := noTag(template); err != nil {
		return err
	}
	if err := checkTag(orDefault(from)); err != nil {
		return renamed(err, map[string]string{"tags": "from"})
	}
	_, err := b.Tag(ctx, template+":"+orDefault(from), []string{tag})
	return renamed(err, map[string]string{"tags": "tag"})
}

// noTag returns an error if a reference to a template names a tag.
func noTag(ref string) error {
	if _, tag, err := ParseName(ref); err != nil || tag != "" {
		return errNoTemplate(ref)
	}
	return nil
}

// UntagTemplate implements brig.TemplateService.
func (b *Builder) UntagTemplate(ctx context.Context, template, tag string) error {
	return b.Untag(ctx, template, []string{tag})
}

// RemoveTemplate implements brig.TemplateService.
func (b *Builder) RemoveTemplate(ctx context.Context, template string) error {
	return renamed(b.Remove(ctx, template), map[string]string{"template": "name"})
}
