package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// writeBackTimeout is the timeout for writing back a workspace at the end of
// its sandbox.
const writeBackTimeout = 15 * time.Minute

// writeBackMargin is how long an instance waits for a server after its lease has ended.
const writeBackMargin = 15 * time.Minute

// saveAllowance returns how long an instance outlives its lease, so that its workspace can be
// written back or the sandbox can be paused. If no server runs during this time, the changes since
// the last write-back are lost.
func saveAllowance(spec brig.Spec) time.Duration {
	if !isWrittenBack(spec) && !spec.PauseAtEnd {
		return 0
	}
	return writeBackMargin
}

// writeBackWorkspace ends the programs of a sandbox that is about to end, and
// writes back its workspace if the mode is direct. A killed sandbox ends even
// if the write-back fails; its record notes the failure. An instance that has
// ended has no files left.
func (ws *workspaces) writeBackWorkspace(ctx context.Context, rec *brig.Record, in brig.Instance, grace time.Duration, reason brig.ExitReason) error {
	if rec.Spec.Workspace.Mode != brig.WorkspaceDirect || rec.State != brig.Running || hasEnded(in) {
		return nil
	}
	defer ws.markEnding(rec.ID)()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+writeBackTimeout)
	defer cancel()
	releaseUse, err := ws.keepAwake(ctx, rec, in)
	if err != nil {
		return err
	}
	defer releaseUse()
	if err = in.Extend(ctx, ws.Now().Add(grace+writeBackTimeout)); err == nil {
		err = in.Quiet(ctx, grace)
	}
	var out *brig.WorkspaceCommit
	if err == nil {
		out, err = ws.commit(ctx, rec, in, brig.ActorFrom(ctx).Name)
	}
	if err != nil && hasEnded(in) {
		ws.noteWorkspace(ctx, rec, "its machine ended before")
		return nil
	}
	if lost := ws.recordCommit(ctx, rec, out, err); err == nil {
		err = lost
	}
	if err != nil && reason == brig.Killed {
		ws.Log.WarnContext(ctx, "failed to save a workspace", "sandbox", rec.ID, "err", err)
		ws.noteWorkspace(ctx, rec, brig.AsError(err).Message)
		return nil
	}
	if kind := brig.KindOf(err); kind == brig.FailedPrecondition || kind == brig.RateLimited {
		apiErr := *brig.AsError(err)
		return apiErr.WithHint("%s; kill the sandbox to end it without", apiErr.Hint)
	}
	return err
}

// noteWorkspace adds a note to a sandbox's record about why its workspace was
// not written back.
func (ws *workspaces) noteWorkspace(ctx context.Context, rec *brig.Record, reason string) {
	_, err := ws.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Notes = append(r.Notes, "workspace: not written back: "+reason)
		return nil
	})
	if err != nil {
		ws.Log.ErrorContext(ctx, "failed to record that a workspace was not saved", "sandbox", rec.ID, "err", err)
	}
}

// leaseGrace is the time that programs have to exit when a lease ends.
const leaseGrace = time.Second

// markEnding marks a sandbox and its programs as ending, until the returned
// function is called.
func (ws *workspaces) markEnding(id brig.ID) func() {
	ws.sandboxes.update(id, func(s *sandbox) { s.ending++ })
	return func() { ws.sandboxes.update(id, func(s *sandbox) { s.ending-- }) }
}

func (ws *workspaces) isEnding(id brig.ID) bool {
	return ws.sandboxes.get(id).ending > 0
}

// writeBackRun writes back the workspace of a one-shot whose program has ended or timed out. It
// reports a failure in the outcome, because the program has already run.
func (ws *workspaces) writeBackRun(ctx context.Context, v *call, m *machine, o *brig.Outcome) {
	use := m.rec.Spec.Workspace
	if use.Mode != brig.WorkspaceDirect {
		return
	}
	err := error(brig.Errorf(brig.FailedPrecondition, "the program used up its memory, and its sandbox ended with it"))
	if !o.OOMKilled {
		o.Workspace, err = ws.commitQuiet(ctx, m, v.actor.Name)
	}
	v.addDetail(brig.DetailWorkspace, use.Name)
	if err == nil {
		if o.Workspace.Version != nil {
			v.addDetail(brig.DetailVersion, strconv.Itoa(o.Workspace.Version.Number))
		}
		return
	}
	ws.Log.WarnContext(ctx, "failed to save a workspace", "sandbox", m.rec.ID, "err", err)
	apiErr := brig.AsError(err)
	o.Workspace = &brig.WorkspaceCommit{Name: use.Name, Error: &brig.ProgramError{
		Code: apiErr.Kind.Code(), Name: string(apiErr.Kind), Message: "the workspace was not written back: " + apiErr.Message, Hint: apiErr.Hint,
	}}
}

// commitQuiet ends all programs of a run and commits its workspace.
func (ws *workspaces) commitQuiet(ctx context.Context, m *machine, actor string) (*brig.WorkspaceCommit, error) {
	if err := m.in.Quiet(ctx, 0); err != nil {
		return nil, err
	}
	m.program.remove(ctx, m.in, m.rec.Spec.User)
	return ws.commit(ctx, m.rec, m.in, actor)
}

// writeBackCanceled writes back the workspace of a run that ends before its
// program does, because its caller disconnected or its tenant's time quota is
// used up.
func (ws *workspaces) writeBackCanceled(ctx context.Context, v *call, m *machine) {
	if m.rec.Spec.Workspace.Mode != brig.WorkspaceDirect || hasEnded(m.in) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), canceledWriteBackTimeout)
	defer cancel()
	out, err := ws.commitQuiet(ctx, m, v.actor.Name)
	if err != nil {
		ws.Log.WarnContext(ctx, "failed to save a workspace", "sandbox", m.rec.ID, "err", err)
	}
	if lost := ws.recordCommit(ctx, m.rec, out, err); lost != nil {
		ws.Log.ErrorContext(ctx, "failed to record that a workspace was saved", "sandbox", m.rec.ID, "err", lost)
	}
}

// canceledWriteBackTimeout is the timeout of writeBackCanceled. It must be less
// than runMargin, by which the instance of a run outlives its program.
const canceledWriteBackTimeout = time.Minute
