package engine

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// fillTemplates checks templates and fills in their defaults. One that is wrong
// is left out: the wiring has refused it before.
func (e *Engine) fillTemplates(all []brig.Template) {
	e.templates = map[string]brig.Template{}
	for _, t := range all {
		if err := t.Check(); err != nil {
			e.Log.Error("a template is left out", "template", t.Name, "err", err)
			continue
		}
		e.templates[t.Name] = t.Fill()
	}
}

// Templates implements brig.Service.
func (e *Engine) Templates(ctx context.Context) (_ []brig.Template, err error) {
	v, err := e.enter(ctx, brig.OpTemplates, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	var out []brig.Template
	for _, name := range slices.Sorted(maps.Keys(e.templates)) {
		out = append(out, e.templates[name])
	}
	return out, nil
}

// fromTemplate returns spec with what its template says, and the template;
// without one, spec as it is.
func (e *Engine) fromTemplate(spec brig.Spec) (brig.Spec, *brig.Template, error) {
	if spec.Template == "" {
		return spec, nil, nil
	}
	t, ok := e.templates[spec.Template]
	switch {
	case !ok:
		known := slices.Sorted(maps.Keys(e.templates))
		hint := "there are none; the server's configuration names them"
		if len(known) > 0 {
			hint = "there are: " + clip(strings.Join(known, ", "))
		}
		return spec, nil, brig.InvalidField("template", "no template %q", clip(spec.Template)).WithHint("%s", hint)
	case spec.Image != "":
		return spec, nil, brig.InvalidField("image", "a template has an image of its own").WithHint("leave out image or template")
	case t.Entrypoint && (spec.Entrypoint || spec.Command != nil):
		return spec, nil, brig.InvalidField("command", "the template starts the image's own program").WithHint("leave out command and entrypoint")
	}
	return t.Apply(spec), &t, nil
}

// inSandbox returns a command with what its sandbox says of commands that do
// not say.
func inSandbox(spec brig.Spec, c brig.Command) brig.Command {
	if c.User == "" {
		c.User = spec.User
	}
	if c.Dir == "" {
		c.Dir = spec.Dir
	}
	return c
}
