package engine

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// CheckTemplate returns an error that names the first invalid field of a template.
func CheckTemplate(t brig.Template) error {
	if err := t.Check(); err != nil {
		return err
	}
	return checkUser("user", t.User)
}

// fillTemplates checks templates and fills in their defaults. It omits invalid
// templates, which the server's configuration should already have rejected.
func (i *images) fillTemplates(all []brig.Template) {
	i.templates = map[string]brig.Template{}
	for _, t := range all {
		if err := CheckTemplate(t); err != nil {
			i.Log.Error("ignored an invalid template", "template", t.Name, "err", err)
			continue
		}
		i.templates[t.Name] = t.Fill()
	}
}

// Templates implements brig.Service.
func (i *images) Templates(ctx context.Context) ([]brig.Template, error) {
	return do(ctx, i.gate, brig.OpTemplates, "", func(v *call) ([]brig.Template, error) {
		var out []brig.Template
		for _, name := range slices.Sorted(maps.Keys(i.templates)) {
			out = append(out, i.templates[name])
		}
		return out, nil
	})
}

// applyTemplate applies spec's template to spec, and returns both. If spec names
// no template, it returns spec unchanged.
func (i *images) applyTemplate(spec brig.Spec) (brig.Spec, *brig.Template, error) {
	if spec.Template == "" {
		return spec, nil, nil
	}
	t, ok := i.templates[spec.Template]
	switch {
	case !ok:
		existing := slices.Sorted(maps.Keys(i.templates))
		hint := "there are none; the server's configuration names them"
		if len(existing) > 0 {
			hint = "there are: " + truncate(strings.Join(existing, ", "))
		}
		return spec, nil, brig.InvalidField("template", "no template %q", truncate(spec.Template)).WithHint("%s", hint)
	case spec.Image != "":
		return spec, nil, brig.InvalidField("image", "a template has an image of its own").WithHint("leave out image or template")
	case t.Entrypoint && (spec.Entrypoint || spec.Command != nil):
		return spec, nil, brig.InvalidField("command", "the template starts the image's own program").WithHint("leave out command and entrypoint")
	}
	return t.Apply(spec), &t, nil
}

// applySandboxDefaults returns a command with the sandbox's user and directory, unless the
// command sets its own.
func applySandboxDefaults(spec brig.Spec, c brig.Command) brig.Command {
	if c.User == "" {
		c.User = spec.User
	}
	if c.Dir == "" {
		c.Dir = spec.Dir
	}
	return c
}
