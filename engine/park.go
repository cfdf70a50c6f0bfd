package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/interpreter"
)

// parkContexts makes the interpreters of a sandbox give up the descriptors of the host, which
// cannot be saved. Afterwards, they use descriptors of the agent, and remain usable even if the
// sandbox is not saved.
func (i *interpreters) parkContexts(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	parker, ok := in.(brig.Parker)
	if !ok {
		return nil
	}
	cs := i.contextsOf(rec.ID)
	cs.mu.Lock()
	list := slices.Collect(maps.Values(cs.byID))
	cs.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	releaseUse, err := i.keepAwake(ctx, rec, in)
	if err != nil {
		return err
	}
	defer releaseUse()
	for _, c := range list {
		if err := i.parkContext(ctx, parker, rec, in, c); err != nil {
			return brig.Errorf(brig.FailedPrecondition, "the interpreter of context %q could not be prepared for the save", c.info.ID).
				WithHint("restart or remove the context; the server's log has the cause").Because(err)
		}
	}
	return nil
}

// parkContext parks the interpreter of one context, unless it has no descriptors
// of the host.
func (i *interpreters) parkContext(ctx context.Context, parker brig.Parker, rec *brig.Record, in brig.Instance, c *codeContext) error {
	release, err := c.queue.wait(ctx) // a check of a recovered interpreter may be in progress
	if err != nil {
		return err
	}
	defer release()
	c.mu.Lock()
	old := c.session
	c.mu.Unlock()
	if old == nil {
		return nil
	}
	p, err := parker.Park(ctx, old.Process, old.Park)
	if brig.KindOf(err) == brig.NotFound && awaitExit(ctx, old) {
		return i.stopInterpreter(ctx, rec, in, c) // the context starts a new interpreter on its next use
	}
	if err != nil || p == old.Process {
		return err
	}
	i.limitMessages(p, rec.Tenant)
	s := old.WithProcess(p)
	c.mu.Lock()
	if c.session != old { // the sandbox has ended
		c.mu.Unlock()
		return p.Close()
	}
	c.session = s
	b, err := json.Marshal(reattachState{Context: c.info, Env: c.env, Nonces: s.Nonces})
	c.mu.Unlock()
	old.Close()
	if err != nil {
		return fmt.Errorf("encode context: %w", err)
	}
	if err := in.Keep(ctx, p, b); err != nil {
		return err
	}
	failpoint.Hit("park.kept")
	err = syncParked(s)
	if errors.Is(err, interpreter.ErrGone) && awaitExit(ctx, s) {
		return i.stopInterpreter(ctx, rec, in, c)
	}
	return err
}

// syncParked discards the late messages of a parked interpreter, and waits until it
// responds.
func syncParked(s *interpreter.Session) error {
	watchdog := time.AfterFunc(recoverContextTimeout, func() { s.Close() }) // Sync then fails
	defer watchdog.Stop()
	return s.Sync(rand.Text(), interpreter.Sink{})
}

// awaitExit waits for the report that an interpreter has exited, and returns false if the report
// does not arrive in time.
func awaitExit(ctx context.Context, s *interpreter.Session) bool {
	ctx, cancel := context.WithTimeout(ctx, endReportTimeout)
	defer cancel()
	_, err := s.Wait(ctx)
	return err == nil
}

// carriedSession parks a pooled interpreter that a pausable sandbox takes, so that programs started
// by its cells can be saved too. It returns nil if there is no interpreter, or if the interpreter
// does not respond.
func (i *interpreters) carriedSession(ctx context.Context, rec *brig.Record, in brig.Instance, s *interpreter.Session) *interpreter.Session {
	parker, ok := in.(brig.Parker)
	if s == nil || !rec.Spec.Pausable || !ok {
		return s
	}
	p, err := parker.Park(ctx, s.Process, s.Park)
	if p == s.Process {
		return s
	}
	if err != nil {
		i.Log.WarnContext(ctx, "failed to park a pooled interpreter", "sandbox", rec.ID, "err", errors.Join(err, endUnused(ctx, s)))
		return nil
	}
	s.Close()
	i.limitMessages(p, rec.Tenant)
	s = s.WithProcess(p)
	// A late message about the parking from the driver would end the first cell.
	if err := syncParked(s); err != nil {
		i.Log.WarnContext(ctx, "failed to synchronize a parked interpreter", "sandbox", rec.ID, "err", errors.Join(err, endUnused(ctx, s)))
		return nil
	}
	return s
}
