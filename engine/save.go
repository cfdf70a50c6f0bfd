package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/interpreter"
)

const (
	// pauseTimeout is how long a pause waits for calls that use the sandbox.
	pauseTimeout = 200 * time.Millisecond
	// saveTimeout is the timeout of a save or a restore, whose duration depends
	// on the disk.
	saveTimeout = 10 * time.Minute
	// lostShimTime is how long a failed save waits for the end of an instance whose shim may have
	// died.
	lostShimTime = time.Second
)

// pauser saves sandboxes to disk, and resumes them.
type pauser struct {
	*gate
	network      *network
	providers    *providers
	lifecycle    *lifecycle
	programs     *programs
	interpreters *interpreters
	packs        *packs
	machines     *machines
}

// saveOf returns the ID of the save of a paused sandbox.
func saveOf(id brig.ID) brig.SaveID { return brig.SaveID(id) }

// saverOf returns the provider of a sandbox as a Saver.
func (ps *providers) saverOf(rec *brig.Record) (brig.Saver, *placement.Backend, error) {
	backend, err := ps.backendOf(&rec.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	saver, err := saverAt(backend)
	return saver, backend, err
}

// saverAt returns a provider as a Saver.
func saverAt(backend *placement.Backend) (brig.Saver, error) {
	saver, ok := backend.Provider.(brig.Saver)
	if !ok || !backend.Provider.Capabilities().Saves {
		return nil, errCannotSave(backend.ID)
	}
	return saver, nil
}

func errCannotSave(provider string) *brig.Error {
	return brig.Errorf(brig.Unimplemented, "the provider %s cannot pause or fork sandboxes on this server", provider).
		WithHint("use a provider that can (brig capabilities): gvisor, with the server as root")
}

// eventsOf returns the audit events for a change of a record. A nil eventsOf stands for no events.
type eventsOf func(*brig.Record) []brig.Event

func (f eventsOf) orNone() func(*brig.Record) []brig.Event {
	if f == nil {
		return func(*brig.Record) []brig.Event { return nil }
	}
	return f
}

// Pause implements brig.Service.
func (p *pauser) Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error) {
	var note func(*call)
	if o.FilesOnly {
		note = withDetail(brig.DetailFilesOnly, "true")
	}
	return doWithDetails(ctx, p.gate, brig.OpPause, name, note, func(v *call) (*brig.Sandbox, error) {
		if v.rec.State == brig.Paused {
			v.addDetail(brig.DetailUnchanged, "true")
		}
		rec, err := p.pause(ctx, v.rec, o, nil)
		if err != nil {
			return nil, err
		}
		return &rec.Sandbox, nil
	})
}

// pause saves a sandbox and ends its instance. It runs to completion even if the caller
// disconnects. events, if not nil, returns the audit events of an automatic pause.
func (p *pauser) pause(ctx context.Context, rec *brig.Record, o brig.PauseOptions, events eventsOf) (*brig.Record, error) {
	if err := checkSavable(rec, "paused", o.FilesOnly); err != nil {
		return nil, err
	}
	saver, backend, err := p.providers.saverOf(rec)
	if err != nil {
		return nil, err
	}
	endMove, err := p.beginSave(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer endMove()
	return p.pauseUnused(ctx, saver, backend, rec, o, events)
}

// pauseUnused is like pause, for a caller that already excludes uses of the sandbox.
func (p *pauser) pauseUnused(ctx context.Context, saver brig.Saver, backend *placement.Backend, rec *brig.Record, o brig.PauseOptions, events eventsOf) (*brig.Record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	rec, err := p.Store.Get(ctx, rec.Tenant, string(rec.ID))
	if err != nil || rec.State == brig.Paused {
		return rec, err
	}
	in, err := p.lifecycle.runningInstance(rec)
	if err != nil {
		return nil, err
	}
	releaseUse, err := p.lifecycle.keepAwake(ctx, rec, in) // a save needs a thawed sandbox
	if err != nil {
		return nil, p.lifecycle.explainLoss(ctx, rec, in, err)
	}
	defer releaseUse()
	a, err := p.getAccount(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	place, err := a.ReservePause() // a tenant without quota writes nothing
	if err != nil {
		return nil, err
	}
	defer place.Release() // the record's own reservation replaces it
	restoreLease, err := p.holdLease(ctx, rec, in)
	if err != nil {
		return nil, p.lifecycle.explainLoss(ctx, rec, in, err)
	}
	defer restoreLease()
	if o.FilesOnly {
		err = p.prepareFilesSave(ctx, rec, in, events != nil)
	} else {
		err = p.prepareSave(ctx, saver, rec, in)
	}
	if err != nil {
		return nil, err
	}
	var draining []*brig.Execution
	if o.FilesOnly {
		draining = p.programs.takeExecs(ctx, rec, in)
	}
	save, err := p.saveDetached(ctx, saver, rec, in, saveOf(rec.ID), brig.SaveOptions{FilesOnly: o.FilesOnly})
	if err == nil {
		p.programs.recordDrained(ctx, rec, draining)
		return p.recordPause(ctx, rec, save, events)
	}
	return p.handleFailedSave(ctx, saver, backend, rec, in, err, events)
}

// holdLease keeps the lease of an instance from ending during a save. The caller calls
// restore at the end of the pause, which does nothing if the instance has ended.
func (p *pauser) holdLease(ctx context.Context, rec *brig.Record, in brig.Instance) (restore func(), err error) {
	end, needed := rec.Expires.Add(saveAllowance(rec.Spec)), p.Now().Add(saveTimeout)
	if !end.Before(needed) {
		return func() {}, nil
	}
	if err := in.Extend(ctx, needed); err != nil {
		return nil, err
	}
	return func() {
		if hasEnded(in) {
			return
		}
		if now, err := p.Store.Get(ctx, rec.Tenant, string(rec.ID)); err == nil {
			end = now.Expires.Add(saveAllowance(now.Spec)) // the lease may have been extended before the pause began
		}
		if err := in.Extend(ctx, end); err != nil && !hasEnded(in) {
			p.Log.WarnContext(ctx, "failed to restore the lease of a sandbox", "sandbox", rec.ID, "err", err)
		}
	}, nil
}

// beginSave prevents calls from using a sandbox until endMove is called. It returns
// FailedPrecondition if calls are still using the sandbox.
func (p *pauser) beginSave(ctx context.Context, rec *brig.Record) (endMove func(), err error) {
	end, users, err := p.usesOf(rec.ID).beginMove(ctx, pauseTimeout)
	if err != nil {
		return nil, err
	}
	if users > 0 {
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is in use: %d calls have not ended", rec.Spec.Name, users).
			WithHint("wait for them, or end them, and try again")
	}
	return func() {
		end()
		p.dropUses(rec.ID)
	}, nil
}

// prepareSave checks that an instance can be saved, and detaches its interpreters from descriptors
// of the host.
func (p *pauser) prepareSave(ctx context.Context, saver brig.Saver, rec *brig.Record, in brig.Instance) error {
	err := p.checkSaveable(ctx, saver, rec, in)
	if err == nil {
		err = p.interpreters.parkContexts(ctx, rec, in)
	}
	if err != nil {
		err = p.lifecycle.explainLoss(ctx, rec, in, err)
	}
	return err
}

// saveDetached detaches an instance from this server and saves it. The reservations of its
// processes are kept for the next attachment.
func (p *pauser) saveDetached(ctx context.Context, saver brig.Saver, rec *brig.Record, in brig.Instance, to brig.SaveID, o brig.SaveOptions) (*brig.Save, error) {
	carried := p.detachPrograms(rec.ID, in)
	p.lifecycle.detachInstance(rec.ID)
	p.holdCarried(rec.ID, carried)
	failpoint.Hit("pause.detached")
	save, err := saver.Save(ctx, in, to, o)
	failpoint.Hit("pause.saved")
	return save, err
}

// handleFailedSave reattaches an instance that was detached for a save. If the instance has ended,
// it records that the sandbox is paused or has ended.
func (p *pauser) handleFailedSave(ctx context.Context, saver brig.Saver, backend *placement.Backend, rec *brig.Record, in brig.Instance, err error, events eventsOf) (*brig.Record, error) {
	if brig.KindOf(err) != brig.FailedPrecondition {
		// If the shim has died, its connection breaks before the provider detects the end of the
		// instance.
		p.awaitEnd(ctx, in, lostShimTime)
	}
	if hasEnded(in) {
		if in.Exit().Reason == brig.Saved { // only the response was lost
			return p.recordSave(ctx, saver, rec, events)
		}
		_, endErr := p.lifecycle.recordEnd(ctx, rec.Tenant, rec.ID, in)
		return nil, errors.Join(err, endErr)
	}
	return nil, errors.Join(err, p.continueInstance(ctx, rec, backend, in, attachment{continued: true}))
}

// checkSaveable returns the provider's error if an instance cannot be saved now. An unused pooled
// interpreter must not prevent the save, so checkSaveable ends it first.
func (p *pauser) checkSaveable(ctx context.Context, saver brig.Saver, rec *brig.Record, in brig.Instance) error {
	if s := p.interpreters.contextsOf(rec.ID).takeUnkept(); s != nil {
		if err := endUnused(ctx, s); err != nil {
			return err
		}
	}
	return saver.CheckSave(ctx, in)
}

// takeUnkept is like takePooled, but only for an interpreter that ends with this server.
func (cs *contexts) takeUnkept() *interpreter.Session {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.kept {
		return nil
	}
	s := cs.pooled
	cs.pooled = nil
	return s
}

// takePooled removes and returns the pooled interpreter, or nil if there is none.
func (cs *contexts) takePooled() *interpreter.Session {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	s := cs.pooled
	cs.pooled, cs.kept = nil, false
	return s
}

// detachPrograms disconnects from the processes of a sandbox, which keep running. It first updates
// their stored state for the next attachment. It returns the reservations of the processes.
func (p *pauser) detachPrograms(id brig.ID, in brig.Instance) (carried []*quota.Reservation) {
	for _, proc := range p.programs.processesOf(id).running() {
		proc.detachMu.Lock()
		proc.detached = true
		p.programs.updateSupervisor(in, proc)
		r := proc.reservation
		proc.reservation = nil
		proc.detachMu.Unlock()
		r.ClearStopFunc()
		proc.unwatch()
		<-proc.unwatched
		if _, end, _ := proc.outputBuffer.State(); end != nil {
			r.Release()
		} else if r != nil {
			carried = append(carried, r)
		}
	}
	return carried
}

// recordPause records that a sandbox is paused.
func (p *pauser) recordPause(ctx context.Context, rec *brig.Record, save *brig.Save, events eventsOf) (*brig.Record, error) {
	a, err := p.getAccount(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	limitRange, _ := a.CallLimits()
	now := p.Now().UTC()
	executions := p.takeCarried(rec.ID).release()
	if save.FilesOnly {
		executions = 0 // the executions ended with the memory
	}
	rec, err = p.updateRecordWith(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State != brig.Running {
			return nil // recorded before
		}
		r.State = brig.Paused
		r.Pause = &brig.Pause{At: now, Bytes: save.Bytes, Left: max(r.Expires.Sub(now), 0), Executions: executions, FilesOnly: save.FilesOnly}
		r.SaveKey, r.Expires = nil, now.Add(limitRange.MaxPause)
		r.Spec.BuildRights = false // the build has ended, and a resume is a use of its result
		return nil
	}, events.orNone())
	failpoint.Hit("pause.recorded")
	if err != nil || rec.State != brig.Paused { // a stop may have been recorded since
		return rec, err
	}
	if save.FilesOnly {
		p.endKeptExecs(ctx, rec)
	}
	return rec, p.trackPaused(ctx, rec)
}

// trackPaused counts the disk space of a paused sandbox against its tenant's
// storage.
func (p *pauser) trackPaused(ctx context.Context, rec *brig.Record) error {
	a, err := p.getAccount(ctx, rec.Tenant)
	if err != nil {
		return err
	}
	p.track(rec.ID, a.ReservePaused(rec.Pause.Bytes))
	p.packs.schedule(rec, p.PackAfter)
	return nil
}

// attachment describes how an existing instance is attached again.
type attachment struct {
	// continued is set if this server or an earlier one detached the instance cleanly. No code ran
	// in its contexts at that time, so no code needs to be interrupted.
	continued bool
	// counted is set if the backend's users include the instance.
	counted bool
	// copied is set for a copy of an instance, which needs an identity and random
	// numbers of its own.
	copied bool
	// paused is how long the instance did not run.
	paused time.Duration
	// booted is set for an instance that has booted with saved files, without the earlier programs.
	booted bool
}

// continueInstance attaches a detached instance, so that it can be used as
// before.
func (p *pauser) continueInstance(ctx context.Context, rec *brig.Record, backend *placement.Backend, in brig.Instance, how attachment) error {
	if p.sandboxes.get(rec.ID).reservation == nil {
		if err := p.trackExisting(ctx, rec); err != nil {
			return err
		}
	}
	if !how.counted {
		backend.Retain()
	}
	p.lifecycle.adopt(rec, backend, in)
	if err := p.network.openEgress(ctx, rec, in); err != nil {
		p.Log.WarnContext(ctx, "failed to open the network of a sandbox", "sandbox", rec.ID, "err", err)
		p.network.reopenEgressAsync(rec, in)
	}
	p.lifecycle.startPauser(ctx, rec, in)
	p.lifecycle.updateRenewals(rec)
	if !how.booted {
		if err := p.interpreters.reattachProcesses(ctx, rec, in, how); err != nil {
			return err
		}
	}
	list, err := p.Store.ListExecs(ctx, rec.ID)
	if err != nil {
		return err
	}
	if how.booted {
		return p.programs.endExecs(ctx, rec, list, rec.Booted, time.Time{})
	}
	return p.programs.recoverExecs(ctx, rec, list)
}

// Resume implements brig.Service.
func (p *pauser) Resume(ctx context.Context, name string) (*brig.Sandbox, error) {
	return do(ctx, p.gate, brig.OpResume, name, func(v *call) (*brig.Sandbox, error) {
		if v.rec.State != brig.Paused && v.rec.State != brig.Running {
			return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is %s", v.rec.Spec.Name, v.rec.State).WithHint("only a paused sandbox can be resumed")
		}
		if v.rec.State == brig.Running {
			v.addDetail(brig.DetailUnchanged, "true")
		}
		rec, err := p.resume(ctx, v.rec, nil)
		if err != nil {
			return nil, err
		}
		return &rec.Sandbox, nil
	})
}

// resumePaused resumes a sandbox for a call that uses it, if the sandbox is paused and the call may
// resume it. It updates the call's record, and reports whether the call can be retried.
func (p *pauser) resumePaused(ctx context.Context, rec *brig.Record) (retryable bool, err error) {
	if rec.State != brig.Running && rec.State != brig.Paused {
		return false, nil
	}
	now, err := p.Store.Get(ctx, rec.Tenant, string(rec.ID))
	if err != nil {
		return false, err
	}
	switch {
	case now.State == brig.Paused && !brig.MayResume(ctx):
		return false, brig.Errorf(brig.FailedPrecondition, "sandbox %q is paused", now.Spec.Name).WithHint("resume it first")
	case now.State == brig.Paused:
		if now, err = p.resume(ctx, now, p.resumedByUse(ctx)); err != nil {
			return false, err
		}
	case now.State != brig.Running || rec.State != brig.Paused:
		return false, nil
	}
	*rec = *now
	return true, nil
}

// resumedByUse returns a function that returns the audit event of an implicit resume.
func (p *pauser) resumedByUse(ctx context.Context) eventsOf {
	return func(r *brig.Record) []brig.Event {
		event := p.observedEvent(r, brig.OpResume.Name, map[string]string{brig.DetailWhy: "use"})
		event.Actor = brig.ActorFrom(ctx).Name
		return []brig.Event{event}
	}
}

// resume restores the instance of a paused sandbox. Concurrent calls wait for the first call, which
// restores the instance. The restore continues even if the caller disconnects.
func (p *pauser) resume(ctx context.Context, rec *brig.Record, events eventsOf) (*brig.Record, error) {
	saver, backend, err := p.providers.saverOf(rec)
	if err != nil {
		return nil, err
	}
	uses := p.usesOf(rec.ID)
	endMove, err := uses.startMove(ctx)
	if err != nil {
		return nil, err
	}
	defer p.dropUses(rec.ID)
	defer endMove()
	// Another call may have resumed the sandbox, and may be using it.
	if rec, err = p.Store.Get(ctx, rec.Tenant, string(rec.ID)); err != nil || rec.State != brig.Paused {
		return rec, err
	}
	if users, err := uses.endUses(ctx, cleanupTimeout); err != nil || users > 0 {
		return nil, cmp.Or(err, fmt.Errorf("resume %s: %d calls use it", rec.ID, users))
	}
	began := time.Now()
	release, err := p.capacity.Acquire(ctx, rec.Tenant, began)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout+p.bootAllowance(rec))
	defer cancel()
	if rec, err = p.Store.Get(ctx, rec.Tenant, string(rec.ID)); err != nil || rec.State != brig.Paused {
		return rec, err
	}
	a, err := p.getAccount(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	limitRange, _ := a.CallLimits()
	if err := checkLife(rec, p.Now(), limitRange.MaxLife); err != nil {
		return nil, err
	}
	alloc, err := p.allocate(backend, p.backends.Current().Terms[backend.ID].Max, func() (*quota.Reservation, error) {
		return a.ReserveResumed(rec.Spec, rec.Pause.Bytes)
	})
	if err != nil {
		return nil, err
	}
	if alloc.executions, err = p.programs.reserveCarried(a, rec, rec.Pause.Executions, rec.Copied); err != nil {
		alloc.release()
		return nil, err
	}
	alloc.reservation.Start()
	in, now, err := p.restore(ctx, saver, backend, rec, limitRange.MaxLife, release, events)
	p.reportCreation(rec.Provider, brig.MadeCaller, began, err)
	if err != nil {
		alloc.release()
		return nil, err
	}
	p.holdCarried(rec.ID, alloc.executions)
	p.sandboxes.get(rec.ID).reservation.Release() // the pause's reservation
	p.track(rec.ID, alloc.reservation)
	how := attachment{continued: true, counted: true, copied: rec.Copied, paused: now.PausedFor - rec.PausedFor, booted: isFilesOnly(rec)}
	if err := p.continueInstance(ctx, now, backend, in, how); err != nil {
		return nil, err
	}
	if rec.Copied {
		now, err = p.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
			r.Copied = false
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := saver.RemoveSave(ctx, saveOf(rec.ID)); err != nil { // the next start of the server removes it
		p.Log.WarnContext(ctx, "failed to remove the save of a resumed sandbox", "sandbox", rec.ID, "err", err)
	}
	failpoint.Hit("resume.removed")
	return now, nil
}

// restore starts the instance of a paused sandbox, and records that the sandbox runs. If the
// restore fails, the sandbox is still paused. restore calls release before it waits for programs of
// the guest.
func (p *pauser) restore(ctx context.Context, saver brig.Saver, backend *placement.Backend, rec *brig.Record, maxLife time.Duration, release func(), events eventsOf) (brig.Instance, *brig.Record, error) {
	spec := rec.Spec
	spec.Image, spec.Env, spec.Share = rec.Digest, withCA(spec), rec.Tenant
	now := p.Now().UTC()
	expires, allowance := leaseAfterPause(rec, now, maxLife), saveAllowance(spec)
	var in brig.Instance
	err := p.packs.unpack(ctx, saver, rec)
	if err == nil && isFilesOnly(rec) {
		allowance += p.bootAllowance(rec)
		spec, err = p.bootSpec(ctx, rec, spec)
	}
	if err == nil {
		in, err = saver.Restore(ctx, saveOf(rec.ID), rec.ID, spec, expires.Add(allowance))
	}
	if err != nil {
		p.packs.removeUnpacked(ctx, saver, rec)
	}
	failpoint.Hit("resume.restored")
	if brig.KindOf(err) == brig.NotFound {
		return nil, nil, brig.Errorf(brig.FailedPrecondition, "the memory and files of sandbox %q are gone", rec.Spec.Name).
			WithHint("remove the sandbox, and create another one").Because(err)
	}
	var notes []string
	if err == nil && isFilesOnly(rec) {
		release()
		notes, err = p.boot(ctx, rec, backend, in, func() time.Time {
			expires = leaseAfterPause(rec, p.Now().UTC(), maxLife)
			return expires
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if err == nil && rec.Copied {
		release()
		if err = runRestored(ctx, rec, in); err != nil {
			err = errors.Join(err, p.pauseAgain(ctx, rec, in))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	out, err := p.updateRecordWith(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State != brig.Paused {
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q is %s", r.Spec.Name, r.State)
		}
		r.State, r.Handle, r.Notes, r.Expires = brig.Running, in.Handle(), append(in.Notes(), notes...), expires
		r.PausedFor += now.Sub(r.Pause.At)
		if isFilesOnly(rec) {
			r.Booted = now
		}
		r.Pause, r.SaveKey = nil, nil
		return nil
	}, events.orNone())
	failpoint.Hit("resume.recorded")
	if err != nil {
		return nil, nil, errors.Join(err, p.pauseAgain(ctx, rec, in))
	}
	return in, out, nil
}
