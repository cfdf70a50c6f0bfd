package e2b

import (
	"context"
	"sync"

	"github.com/brig-run/brig"
)

// defaultPrefix begins the ids of the contexts in which code runs that names
// none: one for each language. They begin in the user's home, as with E2B,
// and not where the Service's own default contexts do; so the door makes its
// own, and knows them again by a variable.
const defaultPrefix = "default-"

// envDefault marks the default contexts.
const envDefault = "E2B_DEFAULT_CONTEXT"

func isDefault(c *brig.CodeContext) bool { return c.Spec.Env[envDefault] != "" }

// defaultContexts remembers the default contexts of sandboxes.
type defaultContexts struct {
	mu sync.Mutex // guards the field below
	by map[string]map[brig.Language]*defaultContext
}

// defaultContext is the one of a sandbox and a language.
type defaultContext struct {
	turn chan struct{} // held while it is looked for or made, and for what follows
	id   string
}

// of returns what is remembered of a context; at first that is nothing.
func (c *defaultContexts) of(sandbox string, l brig.Language) *defaultContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil || len(c.by) > maxKnown {
		c.by = map[string]map[brig.Language]*defaultContext{}
	}
	if c.by[sandbox] == nil {
		c.by[sandbox] = map[brig.Language]*defaultContext{}
	}
	found := c.by[sandbox][l]
	if found == nil {
		found = &defaultContext{turn: make(chan struct{}, 1)}
		c.by[sandbox][l] = found
	}
	return found
}

func (c *defaultContexts) forget(sandbox string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, sandbox)
}

// findDefault returns the id of a default context, empty if there is none yet.
func (d *Door) findDefault(ctx context.Context, s *brig.Sandbox, l brig.Language) (string, error) {
	all, err := d.Service.Contexts(ctx, string(s.ID))
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

// defaultContext returns the id of the default context of a language, and
// makes it when it is first wanted. One that is remembered may be gone: then
// the caller passes its id as stale.
func (d *Door) defaultContext(ctx context.Context, s *brig.Sandbox, l brig.Language, stale string) (string, error) {
	c := d.contexts.of(string(s.ID), l)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if c.id != "" && c.id != stale {
		return c.id, nil
	}
	id, err := d.findDefault(ctx, s, l)
	if err != nil {
		return "", err
	}
	if id == "" {
		made, err := d.Service.CreateContext(ctx, string(s.ID), brig.ContextSpec{
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
