package agentrun

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// How long a template and a sandbox may take to be ready, and how often one
// looks.
const (
	templateTime = 300 * time.Second
	sandboxTime  = 60 * time.Second
	firstLook    = 50 * time.Millisecond
	longestLook  = 2 * time.Second
)

// wanted is the template that sandboxes of a language are made of.
func (p *Provider) wanted(language brig.Language) string {
	if p.config.TemplateName != "" {
		return p.config.TemplateName
	}
	return "brig-" + string(language) + "-default"
}

// ensure makes sure that a template is there and ready. One that an operator
// named must be there.
func (p *Provider) ensure(ctx context.Context, name string) error {
	p.mu.Lock()
	known := p.templates[name]
	p.mu.Unlock()
	if known {
		return nil
	}
	err := p.retry(ctx, "template", func() error { return p.found(ctx, name) })
	if err == nil {
		p.mu.Lock()
		p.templates[name] = true
		p.mu.Unlock()
	}
	return err
}

// forget has a template looked for again.
func (p *Provider) forget(name string) {
	p.mu.Lock()
	delete(p.templates, name)
	p.mu.Unlock()
}

func (p *Provider) found(ctx context.Context, name string) error {
	var t template
	err := p.service.onControl(ctx, "GetTemplate", http.MethodGet, "/templates/"+name, nil, nil, &t)
	if brig.KindOf(err) == brig.NotFound && p.config.TemplateName == "" {
		err = p.service.onControl(ctx, "CreateTemplate", http.MethodPost, "/templates", nil, map[string]any{
			"templateName": name, "templateType": "CodeInterpreter", "cpu": 2, "memory": 4096, "diskSize": 512,
			"sandboxIdleTimeoutInSeconds": idleSeconds, "sandboxTTLInSeconds": 3600,
			"networkConfiguration": map[string]string{"networkMode": "PUBLIC"},
			"description":          "made by Brig",
		}, &t)
		if brig.KindOf(err) == brig.AlreadyExists {
			t, err = template{Name: name}, nil // somebody else was quicker
		}
	} else if brig.KindOf(err) == brig.NotFound {
		return brig.Errorf(brig.ConnectionFailed, "the service has no template %q", name).
			WithHint("have an operator look at the provider's template_name, or leave it out").Because(err)
	}
	if err != nil {
		return notYet(err)
	}
	return p.await(ctx, templateTime, "the template "+name, func() (bool, error) {
		if t.Status == ready {
			return true, nil
		}
		if t.Status == createFailed {
			return false, brig.Errorf(brig.CreationFailed, "the service could not make the template %q: %s", name, brig.Clip(t.Reason, 300)).
				WithHint("look at it in the service's console")
		}
		return false, p.service.onControl(ctx, "GetTemplate", http.MethodGet, "/templates/"+name, nil, nil, &t)
	})
}

// await looks until something is ready, ever less often.
func (p *Provider) await(ctx context.Context, limit time.Duration, what string, look func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for wait := firstLook; ; wait = min(wait*2, longestLook) {
		ok, err := look()
		if k := brig.KindOf(err); ok || err != nil && k != brig.Unavailable && k != brig.RateLimited {
			return err
		}
		if time.Now().Add(wait).After(deadline) {
			return brig.Errorf(brig.CreationFailed, "%s was not ready within %v", what, limit).WithHint("try again, or look at it in the service's console").Because(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// notYet is an error of a step before the program: whatever was begun, the
// program was not.
func notYet(err error) error {
	if !errors.Is(err, brig.ErrBegan) {
		return err
	}
	told := *brig.AsError(err)
	told.Err = errors.New(err.Error())
	return &told
}
