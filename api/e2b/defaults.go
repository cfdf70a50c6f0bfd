package e2b

import (
	"context"
	"sync"

	"github.com/brig-run/brig"
)

// defaultPrefix is the prefix of the ids of the default contexts, of which
// there is one per language. Code runs in a default context if its request
// names no context. As in E2B, a default context starts in the user's home
// directory, unlike the default contexts of the Service. The API therefore
// creates its own contexts and identifies them by an environment variable.
const defaultPrefix = "default-"

// envDefault is the environment variable that marks the default contexts.
const envDefault = "E2B_DEFAULT_CONTEXT"

func isDefault(c *brig.CodeContext) bool { return c.Spec.Env[envDefault] != "" }

// defaultContexts caches the default contexts of sandboxes.
type defaultContexts struct {
	mu sync.Mutex // guards the field below
	by map[string]map[brig.Language]*defaultContext
}

// defaultContext is the default context of one sandbox and one language.
type defaultContext struct {
	lock chan struct{} // held while the context is looked up or created
	id   string
}

// entry returns the cached entry for a sandbox and a language. A new entry is
// empty.
func (c *defaultContexts) entry(sandbox string, l brig.Language) *defaultContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil || len(c.by) > maxCachedSandboxes {
		c.by = map[string]map[brig.Language]*defaultContext{}
	}
	if c.by[sandbox] == nil {
		c.by[sandbox] = map[brig.Language]*defaultContext{}
	}
	found := c.by[sandbox][l]
	if found == nil {
		found = &defaultContext{lock: make(chan struct{}, 1)}
		c.by[sandbox][l] = found
	}
	return found
}

func (c *defaultContexts) forget(sandbox string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, sandbox)
}

// findDefault returns the id of the default context of a language, or an empty
// string if it does not exist yet.
func (i *interpreter) findDefault(ctx context.Context, s *brig.Sandbox, l brig.Language) (string, error) {
	all, err := i.Service.Contexts(ctx, string(s.ID))
	if err != nil {
		return "", err
	}
	for _, c := range all {
		if isDefault(c) && c.Spec.Language == l {
			return c.ID, nil
		}
	}
	return "", nil
}

// defaultContext returns the id of the default context of a language and
// creates the context on first use. If the cached context has been removed, the
// caller passes its id as stale.
func (i *interpreter) defaultContext(ctx context.Context, s *brig.Sandbox, l brig.Language, stale string) (string, error) {
	c := i.finder.contexts.entry(string(s.ID), l)
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if c.id != "" && c.id != stale {
		return c.id, nil
	}
	id, err := i.findDefault(ctx, s, l)
	if err != nil {
		return "", err
	}
	if id == "" {
		made, err := i.Service.CreateContext(ctx, string(s.ID), brig.ContextSpec{
			Language: l, Dir: home, Env: map[string]string{envID: string(s.ID), envDefault: "true"},
		})
		if err != nil {
			return "", err
		}
		id = made.ID
	}
	c.id = id
	return id, nil
}
