package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/internal/failpoint"
)

// A pause that keeps only the files does not save the memory of the sandbox, so no program can
// prevent it. A resume boots the sandbox again, with the files, the main program, and the start
// command of its template. The rest of the sandbox's record is unchanged.

// isFilesOnly reports whether the save of a paused sandbox contains only its files.
func isFilesOnly(rec *brig.Record) bool { return rec.Pause != nil && rec.Pause.FilesOnly }

// checkSavable rejects sandboxes that can never be saved, regardless of their current programs.
// done is the purpose of the save in messages, "paused" or "forked". A files-only save permits a
// main program, which a resume starts again, and a workspace that is written back, except in a
// fork.
func checkSavable(rec *brig.Record, done string, filesOnly bool) error {
	refused := func(format string, args ...any) *brig.Error {
		return brig.Errorf(brig.FailedPrecondition, "sandbox %q cannot be "+done+": "+format, append([]any{rec.Spec.Name}, args...)...)
	}
	switch {
	case rec.State != brig.Running && rec.State != brig.Paused:
		return brig.Errorf(brig.FailedPrecondition, "sandbox %q is %s", rec.Spec.Name, rec.State).WithHint("only a running sandbox can be %s", done)
	case rec.Spec.BuildRights && !filesOnly: // each copy would have the rights of the build
		return refused("it builds a template").WithHint("pause it with files_only, and fork the paused sandbox")
	case rec.Spec.Command != nil && !filesOnly:
		return refused("it has a main program").WithHint("start the program as a process of a pausable sandbox instead, or pause it with files_only")
	case isWrittenBack(rec.Spec) && (!filesOnly || done != "paused"):
		return refused("its workspace is written back").WithHint("use the workspace in mode overlay, and commit it")
	}
	for label := range rec.Spec.Labels {
		if strings.HasPrefix(label, toolLabelPrefix) {
			return refused("it runs tools of the server").WithHint("use sandboxes that were created for a caller")
		}
	}
	return nil
}

// prepareFilesSave writes back the workspace of a sandbox whose memory is not kept, as the end of
// the sandbox would. Its programs continue, in case the save fails. Automatic pauses retry soon, so
// their failures are recorded only once per idleNoteInterval.
func (p *pauser) prepareFilesSave(ctx context.Context, rec *brig.Record, in brig.Instance, automatic bool) error {
	if !isWrittenBack(rec.Spec) {
		return nil
	}
	ws := p.lifecycle.workspaces
	out, err := ws.commit(ctx, rec, in, brig.ActorFrom(ctx).Name)
	if err != nil && hasEnded(in) {
		return p.lifecycle.explainLoss(ctx, rec, in, err)
	}
	switch {
	case err == nil && (out.Version == nil || out.Changed == 0):
		return nil
	case err != nil && automatic && !p.usesOf(rec.ID).shouldRecord(brig.OpCommitWorkspace, idleNoteInterval):
		return err
	}
	return errors.Join(err, ws.recordCommit(ctx, rec, out, err))
}

// takeExecs records the executions that have ended, before a pause ends the rest. It returns the
// executions whose program has ended, but whose output has not. These continue if the pause fails.
func (pg *programs) takeExecs(ctx context.Context, rec *brig.Record, in brig.Instance) (draining []*brig.Execution) {
	list, err := pg.Store.ListExecs(ctx, rec.ID)
	if unfinished := unfinishedExecs(list); err == nil && len(unfinished) > 0 {
		var reported []*brig.Execution
		reported, err = pg.reportedExecs(ctx, in)
		for _, x := range reported {
			switch {
			case unfinished[x.ExecID] == nil:
			case x.Draining:
				draining = append(draining, x)
			case x.Done && err == nil:
				err = pg.recordReported(ctx, rec, x)
			}
		}
	}
	if err != nil {
		pg.Log.WarnContext(ctx, "failed to record the results of executions", "sandbox", rec.ID, "err", err)
	}
	return draining
}

// recordDrained records the results of programs whose output ended with a pause.
func (pg *programs) recordDrained(ctx context.Context, rec *brig.Record, list []*brig.Execution) {
	for _, x := range list {
		x.Done = true
		if err := pg.recordReported(ctx, rec, x); err != nil {
			pg.Log.WarnContext(ctx, "failed to record the result of an execution", "sandbox", rec.ID, "exec", x.ExecID, "err", err)
		}
	}
}

// recordReported records the result of an execution that an instance reports.
func (pg *programs) recordReported(ctx context.Context, rec *brig.Record, reported *brig.Execution) error {
	return pg.completeExec(ctx, rec, reported, func(x *brig.Execution) { x.Result = reported.Result })
}

// endKeptExecs records the end of the executions of a sandbox after a files-only pause. If this
// fails, the resume and the next server retry it.
func (p *pauser) endKeptExecs(ctx context.Context, rec *brig.Record) {
	list, err := p.Store.ListExecs(ctx, rec.ID)
	if err == nil {
		err = p.programs.endExecs(ctx, rec, list, rec.Pause.At, time.Time{})
	}
	if err != nil {
		p.Log.WarnContext(ctx, "failed to record the end of executions", "sandbox", rec.ID, "err", err)
	}
}

// endExecs records that executions in list ended at the time at, because the memory of their
// sandbox was not kept. If before is not zero, only executions that started before this time have
// ended.
func (pg *programs) endExecs(ctx context.Context, rec *brig.Record, list []*brig.Execution, at, before time.Time) error {
	for _, x := range list {
		if x.Done || !before.IsZero() && !x.Started.Before(before) {
			continue
		}
		err := pg.completeExec(ctx, rec, x, func(x *brig.Execution) {
			setKilled(&x.Result)
			x.Duration = max(at.Sub(x.Started), 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bootSpec completes the spec of a sandbox that boots with saved files.
func (p *pauser) bootSpec(ctx context.Context, rec *brig.Record, spec brig.Spec) (brig.Spec, error) {
	if spec.Command == nil {
		return spec, nil
	}
	run, err := p.programs.vault.withSecrets(ctx, rec, *spec.Command)
	if err != nil {
		return spec, err
	}
	spec.Command = &run
	spec.Held = isWrittenBack(rec.Spec) // outlives its program until the write-back
	return spec, nil
}

// bootAllowance returns the extension of a booting sandbox's lease: the time until the start
// command of its template is ready.
func (p *pauser) bootAllowance(rec *brig.Record) time.Duration {
	return p.machines.images.templates[rec.Spec.Template].ReadyTimeout
}

// bootPrograms prepares an instance that has booted with saved files, as the creation of a sandbox
// does. No call can use the sandbox yet. The returned notes are for the sandbox's owner.
func (p *pauser) bootPrograms(ctx context.Context, m *machine) (notes []string, err error) {
	ms := p.machines
	if err := ms.verifyEnforcement(ctx, m); err != nil {
		return nil, err
	}
	if err := p.network.openEgress(ctx, m.rec, m.in); err != nil {
		return nil, err
	}
	if m.rec.Spec.Command != nil && isWrittenBack(m.rec.Spec) {
		if err := m.in.StartMain(ctx, true); err != nil {
			return nil, err
		}
	}
	name := m.rec.Spec.Template
	if name == "" {
		return nil, nil
	}
	t, ok := ms.images.templates[name]
	if !ok {
		return []string{fmt.Sprintf("template: %q does not exist any more, so the resume did not run its start command", name)}, nil
	}
	if t.Entrypoint {
		if m.img, err = p.providers.imageAt(ctx, m.backend, m.rec.Digest); err != nil {
			return nil, err
		}
	}
	return nil, ms.startTemplateCommands(ctx, m, &t)
}

// boot prepares a booted instance of a paused sandbox, and sets the end of its lease to expires.
// After an error, the sandbox is still paused, and has no instance.
func (p *pauser) boot(ctx context.Context, rec *brig.Record, backend *placement.Backend, in brig.Instance, expires func() time.Time) (notes []string, err error) {
	booting := *rec
	notes, err = p.bootPrograms(ctx, &machine{rec: &booting, backend: backend, in: in})
	if err == nil {
		err = in.Extend(ctx, expires().Add(saveAllowance(rec.Spec)))
	}
	failpoint.Hit("resume.booted")
	if err != nil {
		return nil, errors.Join(err, p.pauseAgain(ctx, rec, in))
	}
	return notes, nil
}

// pauseAgain ends the instance of a sandbox that stays paused because its resume failed.
func (p *pauser) pauseAgain(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	ctx = context.WithoutCancel(ctx)
	err := in.Stop(ctx, 0, brig.Saved)
	if saver, _, lost := p.providers.saverOf(rec); lost == nil {
		p.packs.removeUnpacked(ctx, saver, rec)
	}
	if !isFilesOnly(rec) {
		return err
	}
	p.lifecycle.detachInstance(rec.ID) // also releases the reservation of the paused sandbox
	return errors.Join(err, p.trackPaused(ctx, rec))
}

// pauseDetail returns the details of the audit event for an automatic pause.
func pauseDetail(rec *brig.Record, reason string) map[string]string {
	detail := map[string]string{brig.DetailWhy: reason}
	if rec.Spec.PauseFilesOnly {
		detail[brig.DetailFilesOnly] = "true"
	}
	return detail
}
