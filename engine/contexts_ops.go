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
func (i *interpreters) CreateContext(ctx context.Context, name string, spec brig.ContextSpec) (*brig.CodeContext, error) {
	return do(ctx, i.gate, brig.OpCreateContext, name, func(v *call) (*brig.CodeContext, error) {
		in, releaseUse, err := i.lifecycle.useInstanceFor(ctx, v.rec, 0)
		if err != nil {
			return nil, err
		}
		defer releaseUse()
		c, err := i.newContext(ctx, v.rec, in, "cx"+strings.ToLower(rand.Text()), spec)
		if err != nil {
			return nil, err
		}
		c.preload()
		return c.infoCopy(), nil
	})
}

// newContext starts a context. If two callers concurrently create a context
// with the same ID, both get the same context.
func (i *interpreters) newContext(ctx context.Context, rec *brig.Record, in brig.Instance, id string, spec brig.ContextSpec) (*codeContext, error) {
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
	cs := i.contextsOf(rec.ID)
	c := &codeContext{info: brig.CodeContext{ID: id, Sandbox: rec.ID, Spec: spec, Created: i.Now().UTC()}}
	cs.mu.Lock()
	switch other := cs.byID[id]; {
	case other != nil:
		cs.mu.Unlock()
		return other, nil
	case cs.closed:
		cs.mu.Unlock()
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q has ended", rec.Spec.Name)
	case len(cs.byID) >= maxContexts:
		cs.mu.Unlock()
		return nil, brig.Errorf(brig.RateLimited, "the sandbox has %d contexts already", maxContexts).
			WithHint("remove one that is not used")
	}
	// Callers that find the context wait in its queue until it has started.
	release, err := c.queue.wait(ctx)
	cs.byID[id] = c
	cs.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := i.startContext(ctx, rec, in, c); err != nil {
		cs.mu.Lock()
		delete(cs.byID, id)
		cs.mu.Unlock()
		return nil, err
	}
	return c, nil
}

// contextLanguage returns the language that a caller selected, Python by
// default.
func contextLanguage(l brig.Language) (brig.Language, error) {
	if l == "" {
		return brig.Python, nil
	}
	return brig.ParseContextLanguage(string(l))
}

// startContext starts an interpreter for a context. The caller is at the head
// of the context's queue.
func (i *interpreters) startContext(ctx context.Context, rec *brig.Record, in brig.Instance, c *codeContext) error {
	spec := c.info.Spec
	lang, builtin := interpreter.Lookup(spec.Language)
	if !builtin {
		lang = interpreter.Jupyter(spec.Language)
	}
	env := map[string]string{}
	maps.Copy(env, withCA(rec.Spec))
	maps.Copy(env, spec.Env)
	secrets, err := i.vault.secretEnv(ctx, rec) // secrets are not part of the stored state
	if err != nil {
		return err
	}
	session := i.carriedSession(ctx, rec, in, i.contextsOf(rec.ID).takeSuitable(ctx, in, spec, mergeEnv(secrets, env)))
	if session == nil {
		env = nil // the interpreter is started with env
		// Always use a new ID: under the old one, a server that died may have
		// started a process that was never recorded.
		procID := c.info.ID + "." + strings.ToLower(rand.Text())
		if session, err = i.openSession(ctx, in, rec.Tenant, procID, lang, brig.Command{Env: mergeEnv(secrets, spec.Env), Dir: spec.Dir}); err != nil {
			return i.lifecycle.explainLoss(ctx, rec, in, notStartedError(rec.Spec.Image, lang, err))
		}
	}
	failpoint.Hit("context.opened")
	c.mu.Lock()
	if c.removed {
		c.mu.Unlock()
		removed := brig.Errorf(brig.FailedPrecondition, "the context was removed meanwhile")
		if err := endUnused(ctx, session); err != nil {
			removed = removed.Because(err)
		}
		return removed
	}
	c.session, c.env = session, env
	c.info.Flavor, c.info.Version, c.info.Count = session.Flavor, session.Version, 0
	b, err := json.Marshal(reattachState{Context: c.info, Env: env, Nonces: session.Nonces})
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode context: %w", err)
	}
	err = in.Keep(ctx, session.Process, b)
	failpoint.Hit("context.kept")
	return err
}

// Contexts implements brig.Service.
func (i *interpreters) Contexts(ctx context.Context, name string) ([]*brig.CodeContext, error) {
	return do(ctx, i.gate, brig.OpContexts, name, func(v *call) ([]*brig.CodeContext, error) {
		if v.rec.State == brig.Ended {
			return nil, nil // the contexts ended with the sandbox
		}
		if v.rec.State == brig.Paused {
			_, releaseUse, err := i.lifecycle.useInstance(ctx, v.rec)
			if err != nil {
				return nil, err
			}
			defer releaseUse()
		}
		cs := i.contextsOf(v.rec.ID)
		cs.mu.Lock()
		list := slices.Collect(maps.Values(cs.byID))
		cs.mu.Unlock()
		out := make([]*brig.CodeContext, 0, len(list))
		for _, c := range list {
			out = append(out, c.infoCopy())
		}
		slices.SortFunc(out, func(a, b *brig.CodeContext) int { return a.Created.Compare(b.Created) })
		return out, nil
	})
}

// findContext returns a context by its ID.
func (i *interpreters) findContext(rec *brig.Record, contextID string) (*codeContext, error) {
	cs := i.contextsOf(rec.ID)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byID[contextID]; c != nil {
		return c, nil
	}
	hint := "list the sandbox's contexts to see what exists"
	if !rec.Booted.IsZero() {
		hint = "check the ID, or create another context: a pause that keeps only the files ends those that exist"
	}
	return nil, brig.Errorf(brig.NotFound, "no context %q", truncate(contextID)).WithHint("%s", hint)
}

// InterruptContext implements brig.Service.
func (i *interpreters) InterruptContext(ctx context.Context, name, id string) error {
	return i.do(ctx, brig.OpInterrupt, name, func(v *call) error {
		_, c, releaseUse, err := i.useContext(ctx, v.rec, id)
		if err != nil {
			return err
		}
		defer releaseUse()
		return c.interrupt(ctx)
	})
}

// interrupt sends an interrupt to the code that runs in the context.
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
func (i *interpreters) RestartContext(ctx context.Context, name, id string) (*brig.CodeContext, error) {
	return do(ctx, i.gate, brig.OpRestart, name, func(v *call) (*brig.CodeContext, error) {
		in, c, releaseUse, err := i.useContext(ctx, v.rec, id)
		if err != nil {
			return nil, err
		}
		defer releaseUse()
		if err := i.stopInterpreter(ctx, v.rec, in, c); err != nil {
			return nil, err
		}
		release, err := c.queue.wait(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		c.mu.Lock()
		running := c.session != nil
		c.mu.Unlock()
		if !running { // otherwise a queued run has started the interpreter
			if err := i.startContext(ctx, v.rec, in, c); err != nil {
				return nil, err
			}
		}
		return c.infoCopy(), nil
	})
}

// stopInterpreter ends a context's interpreter. The code that runs in it fails.
// Queued runs fail too, because they depend on variables that are lost.
func (i *interpreters) stopInterpreter(ctx context.Context, rec *brig.Record, in brig.Instance, c *codeContext) error {
	s, err := i.dropInterpreter(ctx, in, c)
	if s == nil || err != nil {
		return err
	}
	failpoint.Hit("context.dropped")
	err = s.Kill(ctx)
	s.Close()
	if err != nil { // no context refers to the interpreter anymore, but its code may still run
		i.lifecycle.endProgramLater(rec, in, s)
	}
	return err
}

// dropInterpreter removes a context's interpreter from the context, and returns it, or nil if the
// context has none. The caller ends it.
func (i *interpreters) dropInterpreter(ctx context.Context, in brig.Instance, c *codeContext) (*interpreter.Session, error) {
	c.queue.failAll(brig.Errorf(brig.FailedPrecondition, "the context was restarted").
		WithHint("its variables are lost; run the code again if that is useful"))
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	return s, in.Keep(ctx, s.Process, nil)
}

// RemoveContext implements brig.Service.
func (i *interpreters) RemoveContext(ctx context.Context, name, id string) error {
	return i.do(ctx, brig.OpRemoveContext, name, func(v *call) (err error) {
		in, c, releaseUse, err := i.useContext(ctx, v.rec, id)
		if err != nil {
			return err
		}
		defer releaseUse()
		cs := i.contextsOf(v.rec.ID)
		cs.mu.Lock()
		delete(cs.byID, id)
		cs.mu.Unlock()
		err = i.stopInterpreter(ctx, v.rec, in, c)
		c.close()
		return err
	})
}
