package engine

import (
	"context"
	"strings"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// maxContexts is how many interpreters one sandbox may have.
const maxContexts = 32

// contexts are the interpreters of one sandbox.
type contexts struct {
	mu      sync.Mutex // guards the fields below
	by      map[string]*codeContext
	offered *interpreter.Session // waited in the pool; the first context of its language takes it
	closed  bool
}

// codeContext is one interpreter and the line of those who wait for it.
type codeContext struct {
	line line

	mu      sync.Mutex // guards the fields below
	told    brig.CodeContext
	session *interpreter.Session // nil when it is dead
	env     map[string]string    // set for every run, where the interpreter did not start with it
	removed bool
}

// note is what is kept with an interpreter, or with another process, over a
// server's death.
type note struct {
	Context brig.CodeContext
	Env     map[string]string
	Process *processNote `json:",omitempty"`
}

// contextsOf returns the contexts of a sandbox, an empty set at first.
func (e *Engine) contextsOf(id brig.ID) *contexts {
	e.mu.Lock()
	defer e.mu.Unlock()
	cs := e.contexts[id]
	if cs == nil {
		cs = &contexts{by: map[string]*codeContext{}}
		e.contexts[id] = cs
	}
	return cs
}

// offer keeps the interpreter that waited in a machine for the first context
// that wants one of its language.
func (e *Engine) offer(m *machine) {
	if m.session == nil {
		return
	}
	cs := e.contextsOf(m.rec.ID)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.offered, m.session = m.session, nil
}

// take takes the offered interpreter if it is right for spec.
func (cs *contexts) take(ctx context.Context, in brig.Instance, spec brig.ContextSpec, env map[string]string) *interpreter.Session {
	cs.mu.Lock()
	offered := cs.offered != nil
	cs.mu.Unlock()
	if !offered || spec.Language != brig.Python || startsWith(env) {
		return nil
	}
	if spec.Dir != workspaceDir {
		// One that is not there is refused by starting an interpreter in it.
		at, err := in.Files().Stat(ctx, brig.Path{Name: spec.Dir})
		if err != nil || at.Type != brig.Directory {
			return nil
		}
	}
	cs.mu.Lock()
	s := cs.offered
	cs.offered = nil
	cs.mu.Unlock()
	if s != nil && spec.Dir != workspaceDir {
		if err := s.Chdir(spec.Dir); err != nil {
			s.Close()
			return nil
		}
	}
	return s
}

// startsWith reports whether an interpreter must be started with env, because
// it looks at it then and never again.
func startsWith(env map[string]string) bool {
	for k := range env {
		if strings.HasPrefix(k, "PYTHON") || strings.HasPrefix(k, "LD_") || strings.HasPrefix(k, "BRIG_") {
			return true
		}
	}
	return false
}

// close lets go of every interpreter. Their machine has ended.
func (cs *contexts) close() {
	if cs == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	if cs.offered != nil {
		cs.offered.Close()
	}
	for _, c := range cs.by {
		c.end()
	}
}

// end closes the interpreter's channel, and leaves no way to another.
func (c *codeContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = true
	if c.session != nil {
		c.session.Close()
		c.session = nil
	}
}

// has reports whether s is still the context's interpreter: whoever restarts
// or removes a context takes it away at any moment.
func (c *codeContext) has(s *interpreter.Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session == s
}

// prepare has the interpreter load what cells need before the first comes.
func (c *codeContext) prepare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		_ = c.session.Prepare() // the first cell finds out if it does not listen
	}
}

func (c *codeContext) view() *brig.CodeContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.told
	switch {
	case c.session == nil:
		v.State = brig.ContextDead
	case c.line.busy():
		v.State = brig.ContextBusy
	default:
		v.State = brig.ContextIdle
	}
	return &v
}
