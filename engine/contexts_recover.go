package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// recoverKept takes up what an earlier server kept: processes, and interpreters,
// of which one does not answer, because it was in the middle of something, is ended; its
// context stays and starts anew.
func (e *Engine) recoverKept(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	kept, err := in.Kept(ctx)
	if err != nil {
		return err
	}
	cs := e.contextsOf(rec.ID)
	for _, k := range kept {
		var n note
		if err := json.Unmarshal(k.Note, &n); err != nil {
			return fmt.Errorf("decode note of %s: %w", k.ID, err)
		}
		if n.Process != nil {
			e.recoverProcess(rec, in, k, n.Process)
			continue
		}
		s := &interpreter.Session{Process: k.Process, Flavor: n.Context.Flavor, Version: n.Context.Version}
		c := &codeContext{told: n.Context, env: n.Env, session: s}
		// Before anybody can find it: nobody is let in until it answers.
		leave, err := c.line.join(ctx)
		if err != nil {
			return err
		}
		cs.mu.Lock()
		cs.by[n.Context.ID] = c
		cs.mu.Unlock()
		e.work.Go(func() {
			defer leave()
			e.reviveContext(ctx, rec, in, c, s)
		})
	}
	return nil
}

// reviveTime is how long an interpreter that a new server finds may take to
// end what it is doing: it is interrupted, for nobody waits for it. A machine
// on which all servers start again is slow, and the variables are worth a wait.
const reviveTime = 10 * time.Second

// reviveContext finds out whether an interpreter answers. The caller has its
// turn in the context's line.
func (e *Engine) reviveContext(ctx context.Context, rec *brig.Record, in brig.Instance, c *codeContext, s *interpreter.Session) {
	ctx = context.WithoutCancel(ctx)
	rest, err := e.awake(ctx, rec, in)
	if err != nil {
		return
	}
	defer rest()
	watchdog := time.AfterFunc(reviveTime, func() {
		_ = s.Kill(ctx) // the answer does not come then
	})
	defer watchdog.Stop()
	_ = s.Signal(ctx, "SIGINT")
	if err := s.Sync(rand.Text(), interpreter.Sink{}); err != nil && c.has(s) {
		if err := e.stopInterpreter(ctx, in, c); err != nil {
			e.Log.ErrorContext(ctx, "end an interpreter that does not answer", "context", c.told.ID, "err", err)
		}
	}
}
