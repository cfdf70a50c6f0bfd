package agentrun

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// The maximum times until a template and a sandbox are ready, and the pauses
// between checks.
const (
	templateTimeout = 300 * time.Second
	sandboxTimeout  = 60 * time.Second
	firstPollPause  = 50 * time.Millisecond
	maxPollPause    = 2 * time.Second
)

// templateNameFor returns the name of the template for sandboxes of a language.
func (p *Provider) templateNameFor(language brig.Language) string {
	if p.config.TemplateName != "" {
		return p.config.TemplateName
	}
	return "brig-" + string(language) + "-default"
}

// ensureTemplate makes sure that a template exists and is ready. It does not create a
// template that the operator has configured.
func (p *Provider) ensureTemplate(ctx context.Context, name string) error {
	p.mu.Lock()
	cached := p.templates[name]
	p.mu.Unlock()
	if cached {
		return nil
	}
	err := p.retry(ctx, "template", func() error { return p.lookupTemplate(ctx, name) })
	if err == nil {
		p.mu.Lock()
		p.templates[name] = true
		p.mu.Unlock()
	}
	return err
}

// forget removes a template from the cache, so that the next run looks it up
// again.
func (p *Provider) forget(name string) {
	p.mu.Lock()
	delete(p.templates, name)
	p.mu.Unlock()
}

func (p *Provider) lookupTemplate(ctx context.Context, name string) error {
	var t template
	err := p.service.callControlPlane(ctx, "GetTemplate", http.MethodGet, "/templates/"+name, nil, nil, &t)
	if brig.KindOf(err) == brig.NotFound && p.config.TemplateName == "" {
		err = p.service.callControlPlane(ctx, "CreateTemplate", http.MethodPost, "/templates", nil, map[string]any{
			"templateName": name, "templateType": "CodeInterpreter", "cpu": 2, "memory": 4096, "diskSize": 512,
			"sandboxIdleTimeoutInSeconds": idleSeconds, "sandboxTTLInSeconds": 3600,
			"networkConfiguration": map[string]string{"networkMode": "PUBLIC"},
			"description":          "made by Brig",
		}, &t)
		if brig.KindOf(err) == brig.AlreadyExists {
			t, err = template{Name: name}, nil // another server created it first
		}
	} else if brig.KindOf(err) == brig.NotFound {
		return brig.Errorf(brig.ConnectionFailed, "the service has no template %q", name).
			WithHint("have an operator look at the provider's template_name, or leave it out").Because(err)
	}
	if err != nil {
		return notStartedError(err)
	}
	return p.await(ctx, templateTimeout, "the template "+name, func() (bool, error) {
		if t.Status == ready {
			return true, nil
		}
		if t.Status == createFailed {
			return false, brig.Errorf(brig.CreationFailed, "the service could not make the template %q: %s", name, brig.Clip(t.Reason, 300)).
				WithHint("look at it in the service's console")
		}
		return false, p.service.callControlPlane(ctx, "GetTemplate", http.MethodGet, "/templates/"+name, nil, nil, &t)
	})
}

// await polls until a template or sandbox is ready, with increasing pauses.
func (p *Provider) await(ctx context.Context, limit time.Duration, what string, look func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for wait := firstPollPause; ; wait = min(wait*2, maxPollPause) {
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

// notStartedError marks an error as retryable with another provider, because the
// call failed before the program's start.
func notStartedError(err error) error {
	if brig.RetryOf(err) != brig.RetryContained {
		return err
	}
	e := *brig.AsError(err)
	e.Err, e.Retry = errors.New(err.Error()), brig.RetryByKind
	return &e
}
