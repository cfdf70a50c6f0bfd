package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// keepTime is how long it may take to write a workspace back at the end of its
// sandbox.
const keepTime = 15 * time.Minute

// spare is how much longer than its lease the machine of a sandbox lives whose
// workspace is written back when the lease ends. If no server is there then,
// nobody writes it back.
func spare(spec brig.Spec) time.Duration {
	if spec.Workspace.Mode != brig.WorkspaceDirect || spec.Ephemeral {
		return 0
	}
	return 2 * time.Minute
}

// keepWorkspace ends the programs of a sandbox that is about to end, and
// writes its workspace back if it is direct. Whoever kills a sandbox does not
// want that. A machine that is gone has nothing any more.
func (e *Engine) keepWorkspace(ctx context.Context, rec *brig.Record, in brig.Instance, grace time.Duration, why brig.ExitReason) error {
	if rec.Spec.Workspace.Mode != brig.WorkspaceDirect || rec.State != brig.Running || why == brig.Killed || gone(in) {
		return nil
	}
	defer e.leave(rec.ID)()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+keepTime)
	defer cancel()
	rest, err := e.awake(ctx, rec, in)
	if err != nil {
		return err
	}
	defer rest()
	if err = in.Extend(ctx, e.Now().Add(grace+keepTime)); err == nil {
		err = in.Quiet(ctx, grace)
	}
	var out *brig.WorkspaceCommit
	if err == nil {
		out, err = e.commit(ctx, rec, in, brig.ActorFrom(ctx).Name)
	}
	if err != nil && gone(in) {
		e.noteWorkspace(ctx, rec, "its machine ended before")
		return nil
	}
	event := brig.Event{
		At: e.Now().UTC(), Op: brig.OpCommitWorkspace.Name, Actor: brig.ActorFrom(ctx).Name, Tenant: rec.Tenant,
		Sandbox: rec.ID, Phase: brig.Observed, Kind: brig.KindOf(err),
		Detail: map[string]string{brig.DetailWorkspace: rec.Spec.Workspace.Name},
	}
	if err == nil && out.Version != nil {
		event.Detail[brig.DetailVersion] = strconv.Itoa(out.Version.Number)
	}
	if lost := e.Store.Append(ctx, event); err == nil {
		err = lost
	}
	if kind := brig.KindOf(err); kind == brig.FailedPrecondition || kind == brig.RateLimited {
		told := *brig.AsError(err)
		return told.WithHint("%s; kill the sandbox to end it without", told.Hint)
	}
	return err
}

// noteWorkspace says in a sandbox's record why its workspace was not written
// back.
func (e *Engine) noteWorkspace(ctx context.Context, rec *brig.Record, why string) {
	_, err := e.update(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Notes = append(r.Notes, "workspace: not written back: "+why)
		return nil
	})
	if err != nil {
		e.Log.ErrorContext(ctx, "note that a workspace was not written back", "sandbox", rec.ID, "err", err)
	}
}

// leaseGrace is how long programs have to end when a lease does.
const leaseGrace = time.Second

// leave notes that somebody is ending a sandbox and its programs, until the
// function that it returns is called.
func (e *Engine) leave(id brig.ID) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaving[id]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.leaving[id]--; e.leaving[id] == 0 {
			delete(e.leaving, id)
		}
	}
}

func (e *Engine) isLeaving(id brig.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leaving[id] > 0
}

// watchWorkspace ends a sandbox whose workspace is direct when its lease ends,
// before its machine does it by itself, and when its main program has ended,
// for which its machine waits.
func (e *Engine) watchWorkspace(rec *brig.Record, in brig.Instance) {
	if spare(rec.Spec) == 0 {
		return
	}
	var over chan struct{}
	if rec.Spec.Command != nil {
		over = make(chan struct{})
		e.work.Go(func() {
			if in.Over(e.ctx) == nil {
				close(over)
			}
		})
	}
	e.work.Go(func() {
		for expires := rec.Expires; ; {
			why := brig.LeaseExpired
			select {
			case <-in.Done():
				return
			case <-e.ctx.Done():
				return
			case <-over:
				why, over = brig.Exited, nil
			case <-time.After(max(expires.Sub(e.Now()), 10*time.Millisecond)):
			}
			now, err := e.Store.Get(e.ctx, rec.Tenant, string(rec.ID))
			if err != nil || now.State != brig.Running {
				return
			}
			expires = now.Expires
			if why == brig.LeaseExpired && e.Now().Before(expires) || why == brig.Exited && e.isLeaving(rec.ID) {
				continue // whoever ends all programs ends the main one, too
			}
			e.finish(now, in, leaseGrace, why)
			return
		}
	})
}

// finish ends a sandbox that nobody has told to. What cannot be written back is
// lost, and its record says so.
func (e *Engine) finish(rec *brig.Record, in brig.Instance, grace time.Duration, why brig.ExitReason) {
	_, err := e.halt(e.ctx, rec, grace, why)
	if err == nil || e.ctx.Err() != nil {
		return
	}
	ctx, cancel := cleanup(e.ctx)
	defer cancel()
	e.Log.ErrorContext(ctx, "write back a workspace", "sandbox", rec.ID, "err", err)
	e.noteWorkspace(ctx, rec, brig.AsError(err).Message)
	if err := in.Stop(ctx, 0, why); err != nil {
		e.Log.ErrorContext(ctx, "end a sandbox", "sandbox", rec.ID, "err", err)
	}
}

// keepRun writes back the workspace of a one-shot whose program has ended by
// itself, however it did. What fails is said in the outcome: the program has
// run all the same.
func (e *Engine) keepRun(ctx context.Context, v *visit, m *machine, o *brig.Outcome) {
	use := m.rec.Spec.Workspace
	if use.Mode != brig.WorkspaceDirect {
		return
	}
	err := error(brig.Errorf(brig.FailedPrecondition, "the program did not end by itself"))
	if !o.TimedOut && !o.OOMKilled {
		if err = m.in.Quiet(ctx, 0); err == nil {
			o.Workspace, err = e.commit(ctx, m.rec, m.in, v.actor.Name)
		}
	}
	v.say(brig.DetailWorkspace, use.Name)
	if err == nil {
		if o.Workspace.Version != nil {
			v.say(brig.DetailVersion, strconv.Itoa(o.Workspace.Version.Number))
		}
		return
	}
	e.Log.WarnContext(ctx, "write back a workspace", "sandbox", m.rec.ID, "err", err)
	told := brig.AsError(err)
	o.Workspace = &brig.WorkspaceCommit{Name: use.Name, Error: &brig.ProgramError{
		Code: told.Kind.Code(), Name: string(told.Kind), Message: "the workspace was not written back: " + told.Message, Hint: told.Hint,
	}}
}
