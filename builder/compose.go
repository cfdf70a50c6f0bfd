package builder

import (
	"context"

	"github.com/brig-run/brig"
)

// ComposedService is the brig.Service of a server with a Builder: its templates include those that
// the caller's tenant has built.
type ComposedService struct {
	engineService
	builder *Builder
}

// engineService is what APIs use of an engine.
type engineService interface {
	brig.Service
	brig.Gate
}

// Compose returns the service of an engine with its Builder.
func Compose(engine engineService, b *Builder) ComposedService {
	return ComposedService{engine, b}
}

// Templates implements brig.Service.
func (s ComposedService) Templates(ctx context.Context) ([]brig.Template, error) {
	out, err := s.engineService.Templates(ctx) // authorizes the actor
	if err != nil {
		return nil, err
	}
	built, err := s.builder.List(ctx)
	for _, t := range built {
		out = append(out, brig.Template{Name: t.Name, Built: t})
	}
	return out, err
}

// Create implements brig.Service. A sandbox of a built template is a copy, so it cannot have all
// properties of other sandboxes.
func (s ComposedService) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	name, _, err := ParseName(spec.Template)
	if _, ok := s.builder.configured[spec.Template]; ok || err != nil {
		return s.engineService.Create(ctx, spec)
	}
	if err := s.Check(ctx, brig.OpCreate, ""); err != nil {
		return nil, err
	}
	if _, err := s.builder.Template(ctx, name); brig.KindOf(err) == brig.NotFound {
		return s.engineService.Create(ctx, spec) // its error lists the configured templates
	} else if err != nil {
		return nil, err
	}
	if err := checkTemplateSpec(spec); err != nil {
		return nil, err
	}
	bounds, err := s.builder.options.Service.CallLimits(ctx, brig.ActorFrom(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	ttl, err := bounds.FillTTL("ttl", spec.TTL)
	if err != nil {
		return nil, err
	}
	labels := spec.Labels
	if labels == nil {
		labels = map[string]string{} // without those of the build
	}
	return s.builder.Create(ctx, spec.Template, brig.ForkSpec{
		Name: spec.Name, Labels: labels, TTL: ttl, FixedLease: &spec.FixedLease, Env: spec.Env, Secrets: spec.Secrets, Volumes: spec.Volumes, Egress: &spec.Egress, Limits: spec.Limits,
		User: spec.User, Dir: spec.Dir, AtEnd: &brig.AtEnd{Pause: spec.PauseAtEnd, FilesOnly: spec.PauseFilesOnly},
	})
}

// checkTemplateSpec returns an error for a property that a copy of a template's sandbox cannot have.
func checkTemplateSpec(spec brig.Spec) error {
	for _, c := range []struct {
		field string
		set   bool
	}{
		{"image", spec.Image != ""},
		{"command", spec.Command != nil},
		{"entrypoint", spec.Entrypoint},
		{"workspace", spec.Workspace.Name != ""},
		{"require", len(spec.Require) > 0},
		{"placement", !spec.Placement.IsZero()},
		{"freeze_after_ms", spec.FreezeAfter != 0},
		{"pause_after_ms", spec.PauseAfter != 0},
	} {
		if c.set {
			return brig.InvalidField(c.field, "a sandbox of a built template cannot have it").WithHint("leave it out")
		}
	}
	return nil
}
