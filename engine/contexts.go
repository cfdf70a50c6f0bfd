package engine

import (
	"context"
	"maps"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// maxContexts is the maximum number of interpreters in one sandbox.
const maxContexts = 32

// contexts holds the interpreters of one sandbox.
type contexts struct {
	mu     sync.Mutex // guards the fields below
	byID   map[string]*codeContext
	pooled *interpreter.Session // from the pool or the template; for the first context of its language
	kept   bool                 // pooled outlives this server, and is part of saves
	closed bool
}

// codeContext is one interpreter, with a queue of runs.
type codeContext struct {
	queue runQueue

	mu      sync.Mutex // guards the fields below
	info    brig.CodeContext
	session *interpreter.Session // nil if the interpreter has ended
	env     map[string]string    // set for every run, if the interpreter was not started with it
	removed bool
}

// reattachState is stored with an interpreter or another process, so that a new server can take
// over the process.
type reattachState struct {
	Context brig.CodeContext
	Env     map[string]string
	Nonces  bool          `json:",omitempty"` // as in interpreter.Session
	Process *processState `json:",omitempty"`
	Idle    brig.Language `json:",omitempty"` // language of an interpreter without a context
}

// contextsOf returns the contexts of a sandbox, creating an empty set on first
// use.
func (i *interpreters) contextsOf(id brig.ID) (cs *contexts) {
	i.sandboxes.update(id, func(s *sandbox) {
		if s.contexts == nil {
			s.contexts = &contexts{byID: map[string]*codeContext{}}
		}
		cs = s.contexts
	})
	return cs
}

// addPooledSession stores the interpreter that was started in a pooled instance, as the interpreter
// of the first context of its language.
func (i *interpreters) addPooledSession(m *machine) {
	if m.session == nil {
		return
	}
	cs := i.contextsOf(m.rec.ID)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.pooled, m.session = m.session, nil
}

// takeSuitable returns the pooled interpreter if it suits spec, and nil otherwise.
func (cs *contexts) takeSuitable(ctx context.Context, in brig.Instance, spec brig.ContextSpec, env map[string]string) *interpreter.Session {
	cs.mu.Lock()
	available := cs.pooled != nil
	cs.mu.Unlock()
	if !available || spec.Language != brig.Python || interpreter.NeedsAtStart(spec.Language, maps.Keys(env)) {
		return nil
	}
	if spec.Dir != workspaceDir {
		// A missing directory is reported when a new interpreter is started in
		// it.
		entry, err := in.Files().Stat(ctx, brig.Path{Name: spec.Dir})
		if err != nil || entry.Type != brig.Directory {
			return nil
		}
	}
	s := cs.takePooled()
	if s != nil && spec.Dir != workspaceDir {
		if err := s.Chdir(spec.Dir); err != nil {
			_ = endUnused(ctx, s) // it does not respond, and the caller starts another interpreter
			return nil
		}
	}
	return s
}

// endUnused kills an interpreter that no context uses, and waits for its end. If it were only
// closed, it would run for another moment and could prevent a save during that time.
func endUnused(ctx context.Context, p brig.Process) error {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	err := p.Kill(ctx)
	_ = p.Close() // no reader is left
	return err
}

// close closes every interpreter, after the sandbox's instance has ended.
func (cs *contexts) close() {
	if cs == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	if cs.pooled != nil {
		cs.pooled.Close()
	}
	for _, c := range cs.byID {
		c.close()
	}
}

// close closes the interpreter's channel and marks the context as removed, so
// that no other interpreter is started in it.
func (c *codeContext) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = true
	if c.session != nil {
		c.session.Close()
		c.session = nil
	}
}

// isCurrent reports whether s is still the context's interpreter. A concurrent
// restart or removal of the context may replace it at any time.
func (c *codeContext) isCurrent(s *interpreter.Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session == s
}

// preload makes the interpreter preload the modules that cells need, before the
// first cell arrives.
func (c *codeContext) preload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		_ = c.session.Prepare() // if the interpreter does not respond, the first cell fails
	}
}

func (c *codeContext) infoCopy() *brig.CodeContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.info
	switch {
	case c.session == nil:
		v.State = brig.ContextDead
	case c.queue.hasWaiters():
		v.State = brig.ContextBusy
	default:
		v.State = brig.ContextIdle
	}
	return &v
}
