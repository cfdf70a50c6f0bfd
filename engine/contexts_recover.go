package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// reattachProcesses takes over the processes and interpreters that an earlier
// server left in a sandbox. An interpreter that does not respond, because it
// was running code, is ended. Its context persists, and starts a new
// interpreter.
func (i *interpreters) reattachProcesses(ctx context.Context, rec *brig.Record, in brig.Instance, how attachment) error {
	kept, err := in.KeptProcesses(ctx)
	if err != nil {
		return err
	}
	cs := i.contextsOf(rec.ID)
	carried := i.takeCarried(rec.ID)
	defer carried.release() // release the reservations of processes that ended during a save
	var recovering sync.WaitGroup
	if how.copied { // an interpreter must reseed before any caller or later server uses it
		defer recovering.Wait()
	}
	for _, k := range kept {
		var n reattachState
		if err := json.Unmarshal(k.Note, &n); err != nil {
			return fmt.Errorf("decode note of %s: %w", k.ID, err)
		}
		if n.Process != nil {
			n.Process.Started = n.Process.Started.Add(how.paused) // the time limit excludes the pause
			i.programs.recoverProcess(rec, in, k, n.Process, carried.next())
			continue
		}
		n.Context.Sandbox = rec.ID // the sandbox may be a copy
		i.limitMessages(k.Process, rec.Tenant)
		s := &interpreter.Session{Process: k.Process, Flavor: n.Context.Flavor, Version: n.Context.Version, Nonces: n.Nonces}
		if n.Idle != "" {
			recovering.Add(1)
			i.background.Go(func() {
				defer recovering.Done()
				i.recoverIdle(ctx, rec, in, cs, s, how)
			})
			continue
		}
		c := &codeContext{info: n.Context, env: n.Env, session: s}
		// Join the queue before other callers can find the context, so that
		// they wait until the interpreter responds.
		release, err := c.queue.wait(ctx)
		if err != nil {
			return err
		}
		cs.mu.Lock()
		cs.byID[n.Context.ID] = c
		cs.mu.Unlock()
		recovering.Add(1)
		i.background.Go(func() {
			defer recovering.Done()
			defer release()
			i.recoverContext(ctx, rec, in, c, s, how)
		})
	}
	return nil
}

// recoverContextTimeout is how long a recovered interpreter may take to end its current run, which
// the server interrupts because no caller waits for it. The timeout is long because the host is
// slow while all servers restart at once, and because a timeout loses the variables. A copied
// interpreter runs no code, but all copies start at once, so copyContextTimeout is even longer.
const (
	recoverContextTimeout = 10 * time.Second
	copyContextTimeout    = time.Minute
)

// recoverContext checks whether an interpreter responds. It first interrupts code
// that may be running, and makes an interpreter in a copy of a sandbox reseed its
// random generators. The caller is at the head of the context's queue.
func (i *interpreters) recoverContext(ctx context.Context, rec *brig.Record, in brig.Instance, c *codeContext, s *interpreter.Session, how attachment) {
	ctx = context.WithoutCancel(ctx)
	releaseUse, err := i.keepAwake(ctx, rec, in)
	if err != nil {
		return
	}
	defer releaseUse()
	if !how.continued {
		_ = s.Signal(ctx, "SIGINT")
	}
	killed, err := i.awaitRecovered(rec, in, s, how)
	if err == nil || !c.isCurrent(s) {
		return
	}
	if killed {
		s.Close()
		_, err = i.dropInterpreter(ctx, in, c)
	} else {
		err = i.stopInterpreter(ctx, rec, in, c)
	}
	if err != nil {
		i.Log.ErrorContext(ctx, "failed to end an interpreter that does not respond", "context", c.info.ID, "err", err)
	}
}

// errUnresponsive is the error of an interpreter that was killed because it did not respond.
var errUnresponsive = errors.New("the interpreter did not respond in time")

// awaitRecovered waits until a recovered interpreter responds, and in a copy of a sandbox
// until it has reseeded its random generators. killed reports whether awaitRecovered has killed it,
// because it did not respond in time.
func (i *interpreters) awaitRecovered(rec *brig.Record, in brig.Instance, s *interpreter.Session, how attachment) (killed bool, err error) {
	respond, timeout := s.Sync, recoverContextTimeout
	if how.copied {
		respond, timeout = s.Renew, copyContextTimeout
	}
	ended := make(chan struct{})
	watchdog := time.AfterFunc(timeout, func() {
		defer close(ended)
		i.lifecycle.endProgram(rec, in, s) // respond then fails
	})
	err = respond(rand.Text(), interpreter.Sink{})
	if watchdog.Stop() {
		return false, err
	}
	<-ended // a second attempt would race with this one
	return true, errors.Join(errUnresponsive, err)
}

// recoverIdle takes over an interpreter that waits for a context.
func (i *interpreters) recoverIdle(ctx context.Context, rec *brig.Record, in brig.Instance, cs *contexts, s *interpreter.Session, how attachment) {
	ctx = context.WithoutCancel(ctx)
	releaseUse, err := i.keepAwake(ctx, rec, in)
	if err != nil {
		return
	}
	defer releaseUse()
	if killed, err := i.awaitRecovered(rec, in, s, how); err != nil {
		i.Log.WarnContext(ctx, "ended an idle interpreter that does not respond", "sandbox", rec.ID, "err", err)
		var killErr error
		if killed {
			s.Close()
		} else {
			killErr = endUnused(ctx, s)
		}
		if err := errors.Join(killErr, in.Keep(ctx, s.Process, nil)); err != nil && !hasEnded(in) {
			i.Log.WarnContext(ctx, "failed to end an idle interpreter", "sandbox", rec.ID, "err", err)
		}
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed || cs.pooled != nil {
		s.Close()
		return
	}
	cs.pooled, cs.kept = s, true
}
