package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/interpreter"
)

// CreateContext implements brig.Service.
func (e *Engine) CreateContext(ctx context.Context, name string, spec brig.ContextSpec) (_ *brig.CodeContext, err error) {
	v, err := e.enter(ctx, brig.OpCreateContext, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	in, rest, err := e.occupy(ctx, v.rec, 0)
	if err != nil {
		return nil, err
	}
	defer rest()
	c, err := e.newContext(ctx, v.rec, in, "cx"+strings.ToLower(rand.Text()), spec)
	if err != nil {
		return nil, err
	}
	c.prepare()
	return c.view(), nil
}

// newContext starts a context. Of two that start under one id at once, both
// callers get the first.
func (e *Engine) newContext(ctx context.Context, rec *brig.Record, in brig.Instance, id string, spec brig.ContextSpec) (*codeContext, error) {
	var err error
	if spec.Language, err = contextLanguage(spec.Language); err != nil {
		return nil, err
	}
	if spec.Dir == "" {
		spec.Dir = workspaceDir
	}
	if err := checkCommand("env", brig.Command{Argv: []string{"x"}, Dir: spec.Dir, Env: spec.Env}); err != nil {
		return nil, err
	}
	cs := e.contextsOf(rec.ID)
	c := &codeContext{told: brig.CodeContext{ID: id, Sandbox: rec.ID, Spec: spec, Created: e.Now().UTC()}}
	cs.mu.Lock()
	switch other := cs.by[id]; {
	case other != nil:
		cs.mu.Unlock()
		return other, nil
	case cs.closed:
		cs.mu.Unlock()
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q has ended", rec.Spec.Name)
	case len(cs.by) >= maxContexts:
		cs.mu.Unlock()
		return nil, brig.Errorf(brig.RateLimited, "the sandbox has %d contexts already", maxContexts).
			WithHint("remove one that is not used")
	}
	// Whoever finds it waits in its line until it has started.
	leave, err := c.line.join(ctx)
	cs.by[id] = c
	cs.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := e.startContext(ctx, rec, in, c); err != nil {
		cs.mu.Lock()
		delete(cs.by, id)
		cs.mu.Unlock()
		return nil, err
	}
	return c, nil
}

// contextLanguage is the language that a caller means, Python by default.
func contextLanguage(l brig.Language) (brig.Language, error) {
	if l == "" {
		return brig.Python, nil
	}
	return brig.ParseContextLanguage(string(l))
}

// startContext gives a context an interpreter. The caller has its turn in the
// context's line.
func (e *Engine) startContext(ctx context.Context, rec *brig.Record, in brig.Instance, c *codeContext) error {
	spec := c.told.Spec
	lang, ours := interpreter.Lookup(spec.Language)
	if !ours {
		lang = interpreter.Jupyter(spec.Language)
	}
	env := map[string]string{}
	maps.Copy(env, rec.Spec.Env)
	maps.Copy(env, spec.Env)
	secrets, err := e.secretEnv(ctx, rec) // not part of what is kept
	if err != nil {
		return err
	}
	session := e.contextsOf(rec.ID).take(ctx, in, spec, layer(secrets, env))
	if session == nil {
		env = nil // it is started with it
		// Never the same again: a server that died may have started one that
		// nobody knows of.
		procID := c.told.ID + "." + strings.ToLower(rand.Text())
		if session, err = open(ctx, in, procID, lang, brig.Command{Env: layer(secrets, spec.Env), Dir: spec.Dir}); err != nil {
			return e.lost(ctx, rec, in, notStarted(rec.Spec.Image, lang, err))
		}
	}
	failpoint.Hit("context.opened")
	c.mu.Lock()
	if c.removed {
		c.mu.Unlock()
		session.Close()
		return brig.Errorf(brig.FailedPrecondition, "the context was removed meanwhile")
	}
	c.session, c.env = session, env
	c.told.Flavor, c.told.Version, c.told.Count = session.Flavor, session.Version, 0
	b, err := json.Marshal(note{Context: c.told, Env: env})
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode context: %w", err)
	}
	err = in.Keep(ctx, session.Process, b)
	failpoint.Hit("context.kept")
	return err
}

// Contexts implements brig.Service.
func (e *Engine) Contexts(ctx context.Context, name string) (_ []*brig.CodeContext, err error) {
	v, err := e.enter(ctx, brig.OpContexts, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if v.rec.State == brig.Ended {
		return nil, nil // they ended with it
	}
	cs := e.contextsOf(v.rec.ID)
	cs.mu.Lock()
	list := slices.Collect(maps.Values(cs.by))
	cs.mu.Unlock()
	out := make([]*brig.CodeContext, 0, len(list))
	for _, c := range list {
		out = append(out, c.view())
	}
	slices.SortFunc(out, func(a, b *brig.CodeContext) int { return a.Created.Compare(b.Created) })
	return out, nil
}

// context finds a context by its id.
func (e *Engine) context(id brig.ID, contextID string) (*codeContext, error) {
	cs := e.contextsOf(id)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.by[contextID]; c != nil {
		return c, nil
	}
	return nil, brig.Errorf(brig.NotFound, "no context %q", clip(contextID)).
		WithHint("list the sandbox's contexts to see what exists")
}

// InterruptContext implements brig.Service.
func (e *Engine) InterruptContext(ctx context.Context, name, id string) (err error) {
	v, err := e.enter(ctx, brig.OpInterrupt, name)
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	_, c, rest, err := e.useContext(ctx, v.rec, id)
	if err != nil {
		return err
	}
	defer rest()
	return c.interrupt(ctx)
}

// interrupt interrupts what runs.
func (c *codeContext) interrupt(ctx context.Context) error {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Signal(ctx, "SIGINT")
}

// RestartContext implements brig.Service.
func (e *Engine) RestartContext(ctx context.Context, name, id string) (_ *brig.CodeContext, err error) {
	v, err := e.enter(ctx, brig.OpRestart, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	in, c, rest, err := e.useContext(ctx, v.rec, id)
	if err != nil {
		return nil, err
	}
	defer rest()
	if err := e.stopInterpreter(ctx, in, c); err != nil {
		return nil, err
	}
	leave, err := c.line.join(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c.mu.Lock()
	running := c.session != nil
	c.mu.Unlock()
	if !running { // otherwise somebody who waited has started it
		if err := e.startContext(ctx, v.rec, in, c); err != nil {
			return nil, err
		}
	}
	return c.view(), nil
}

// stopInterpreter ends a context's interpreter; what runs in it fails, and
// what waits in line fails too: it was meant for variables that are gone.
func (e *Engine) stopInterpreter(ctx context.Context, in brig.Instance, c *codeContext) error {
	c.line.expel(brig.Errorf(brig.FailedPrecondition, "the context was restarted").
		WithHint("its variables are gone; run the code again if it still makes sense"))
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	if err := in.Keep(ctx, s.Process, nil); err != nil {
		return err
	}
	failpoint.Hit("context.dropped")
	err := s.Kill(ctx)
	s.Close()
	return err
}

// RemoveContext implements brig.Service.
func (e *Engine) RemoveContext(ctx context.Context, name, id string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveContext, name)
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	in, c, rest, err := e.useContext(ctx, v.rec, id)
	if err != nil {
		return err
	}
	defer rest()
	cs := e.contextsOf(v.rec.ID)
	cs.mu.Lock()
	delete(cs.by, id)
	cs.mu.Unlock()
	err = e.stopInterpreter(ctx, in, c)
	c.end()
	return err
}
