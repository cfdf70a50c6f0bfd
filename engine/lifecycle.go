package engine

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/internal/failpoint"
)

// lifecycle changes the state of existing sandboxes, and records their ends.
type lifecycle struct {
	*gate
	network    *network
	providers  *providers
	workspaces *workspaces
	streams    *streams
	// resumePaused resumes a sandbox for a call that uses it, if the sandbox is paused. It updates
	// the call's record, and reports whether the call can be retried.
	resumePaused func(ctx context.Context, rec *brig.Record) (retryable bool, err error)
	// pauseExpired pauses a sandbox whose lease has ended.
	pauseExpired func(ctx context.Context, rec *brig.Record) error
	// recordLateSave records that a sandbox is paused, if its attached instance has ended with a
	// save.
	recordLateSave func(tenant string, id brig.ID, in brig.Instance) error
	// pauseIdle pauses a sandbox that is idle.
	pauseIdle func(ctx context.Context, rec *brig.Record, s *idlePauser) error
}

// List implements brig.Service.
func (l *lifecycle) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	return do(ctx, l.gate, brig.OpList, "", func(v *call) (*brig.Page, error) {
		if o.Limit < 0 || o.Limit > 1000 {
			return nil, brig.InvalidField("limit", "%d is out of bounds", o.Limit).WithHint("give 1 to 1000")
		}
		recs, next, err := l.Store.List(ctx, v.actor.Tenant, o)
		if err != nil {
			return nil, err
		}
		page := &brig.Page{Next: next}
		for _, r := range recs {
			if !l.isPendingDelete(r.ID) {
				page.Sandboxes = append(page.Sandboxes, &r.Sandbox)
			}
		}
		return page, nil
	})
}

// Extend implements brig.Service.
func (l *lifecycle) Extend(ctx context.Context, name string, ttl time.Duration) (*brig.Sandbox, error) {
	return do(ctx, l.gate, brig.OpExtend, name, func(v *call) (_ *brig.Sandbox, err error) {
		if ttl, err = v.limitRange.FillTTL("ttl_ms", ttl); err != nil {
			return nil, err
		}
		// Wait for a pause in progress: if it fails, it restores the recorded lease.
		leave, err := l.usesOf(v.rec.ID).enter(ctx)
		if err != nil {
			return nil, err
		}
		defer l.dropUses(v.rec.ID)
		defer leave()
		if v.rec, err = l.Store.Get(ctx, v.rec.Tenant, string(v.rec.ID)); err != nil {
			return nil, err
		}
		in, err := l.runningInstance(v.rec)
		if err != nil {
			return nil, err
		}
		rec, err := l.setLease(ctx, v.rec, in, l.Now().Add(ttl))
		if err != nil {
			return nil, err
		}
		l.updateRenewals(rec)
		return &rec.Sandbox, nil
	})
}

// runningInstance returns the instance of a running sandbox.
func (l *lifecycle) runningInstance(rec *brig.Record) (brig.Instance, error) {
	in := l.instance(rec.ID)
	if rec.State == brig.Running && in == nil {
		if err := l.providers.checkReachable(&rec.Sandbox); err != nil {
			return nil, err
		}
	}
	if rec.State != brig.Running || in == nil {
		state := string(rec.State)
		if rec.Exit != nil {
			state += " (" + string(rec.Exit.Reason) + ")"
		}
		if rec.State == brig.Paused {
			return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is paused", rec.Spec.Name).WithHint("resume it first")
		}
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is %s", rec.Spec.Name, state).
			WithHint("create a new one; logs and exit of this one are kept")
	}
	return in, nil
}

// setLease changes the end of a lease, up to the maximum life of the sandbox.
func (l *lifecycle) setLease(ctx context.Context, rec *brig.Record, in brig.Instance, end time.Time) (*brig.Record, error) {
	a, err := l.getAccount(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	limitRange, _ := a.CallLimits()
	if last := endOfLife(rec, l.Now(), limitRange.MaxLife); end.After(last) {
		end = last
	}
	if err := in.Extend(ctx, end.Add(saveAllowance(rec.Spec))); err != nil {
		return nil, l.explainLoss(ctx, rec, in, err)
	}
	failpoint.Hit("lease.extended")
	return l.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Expires = end.UTC()
		return nil
	})
}

// explainLoss replaces err by an error that describes the end of the sandbox,
// if its instance has ended.
func (l *lifecycle) explainLoss(ctx context.Context, rec *brig.Record, in brig.Instance, err error) error {
	if !hasEnded(in) {
		return err
	}
	if now, settleErr := l.recordEnd(context.WithoutCancel(ctx), rec.Tenant, rec.ID, in); settleErr == nil {
		if _, ended := l.runningInstance(now); ended != nil {
			return brig.AsError(ended).Because(err)
		}
	}
	return err
}

// recordEnd records the end of a sandbox whose instance has ended.
func (l *lifecycle) recordEnd(ctx context.Context, tenant string, id brig.ID, in brig.Instance) (*brig.Record, error) {
	if exit := in.Exit(); exit != nil && exit.Reason == brig.Saved {
		if rec, err := l.Store.Get(ctx, tenant, string(id)); err != nil || rec.State != brig.Stopping {
			return rec, err // the sandbox is paused
		}
	}
	defer l.unregister(id)
	rec, err := l.updateRecordWith(ctx, tenant, id, func(r *brig.Record) error {
		if r.State == brig.Ended {
			return errAlreadyEnded
		}
		r.State = brig.Ended
		r.Exit = in.Exit()
		r.Ended = l.Now().UTC()
		if r.Exit != nil && !r.Exit.At.IsZero() {
			r.Ended = r.Exit.At
		}
		if r.Exit != nil && r.Exit.Reason == brig.Saved { // the sandbox was stopped during a pause
			exit := *r.Exit
			exit.Reason = brig.Stopped
			r.Exit = &exit
		}
		return nil
	}, func(r *brig.Record) []brig.Event { return []brig.Event{l.endedEvent(r)} })
	failpoint.Hit("settle.recorded")
	if exit := in.Exit(); err == nil && exit != nil && exit.Reason == brig.Saved {
		l.removeStaleSave(ctx, rec)
	}
	if errors.Is(err, errAlreadyEnded) {
		return l.Store.Get(ctx, tenant, string(id))
	}
	if err == nil && !rec.Spec.Ephemeral {
		l.trimLater(ctx, tenant)
	}
	// The record of a one-shot is usually removed before the end of its
	// instance is observed. If one-shots were counted here, the count would
	// depend on that race.
	if err == nil && rec.Exit != nil && !rec.Spec.Ephemeral {
		l.Observer.SandboxEnded(rec.Provider, rec.Exit.Reason)
		if rec.Exit.Reason == brig.AgentLost {
			l.Log.Warn("ended a sandbox whose agent stopped working", "sandbox", id, "tenant", tenant, "provider", rec.Provider)
		}
	}
	return rec, err
}

// removeStaleSave removes the save of a sandbox that runs or has ended. Such a save remains if a
// server died after it resumed or ended the sandbox.
func (l *lifecycle) removeStaleSave(ctx context.Context, rec *brig.Record) {
	saver, _, err := l.providers.saverOf(rec)
	if err != nil {
		return // without a Saver there is no save
	}
	if err := saver.RemoveSave(ctx, saveOf(rec.ID)); err != nil { // the next start of the server removes it
		l.Log.WarnContext(ctx, "failed to remove the save of a sandbox that is not paused", "sandbox", rec.ID, "err", err)
	}
}

var errAlreadyEnded = errors.New("settled before")

// Usage implements brig.Service.
func (l *lifecycle) Usage(ctx context.Context, name string) (*brig.Usage, error) {
	return do(ctx, l.gate, brig.OpUsage, name, func(v *call) (*brig.Usage, error) {
		in, err := l.runningInstance(v.rec)
		if err != nil {
			return nil, err
		}
		u, err := in.Usage(ctx)
		if err != nil {
			return nil, err
		}
		u.Disk = -1
		if d, ok := in.(brig.DiskMeter); ok {
			u.Disk = d.DiskUsed(ctx)
		}
		u.Sent, u.Received = l.sandboxes.get(v.rec.ID).egress.usage()
		return u, nil
	})
}

// adopt registers an instance and watches for its end. The caller has counted
// the instance as a user of the backend.
func (l *lifecycle) adopt(r *brig.Record, backend *placement.Backend, in brig.Instance) {
	detached := make(chan struct{})
	l.sandboxes.update(r.ID, func(s *sandbox) {
		s.instance, s.backend, s.detached, s.refusals = in, backend, detached, newRefusals(r, in)
	})
	l.watchWorkspace(r, in, detached)
	l.watchPauseAtEnd(r, in, detached)
	l.watchIdle(r, in, detached)
	l.workspaces.saveWorkspace(r, in, detached)
	id, tenant := r.ID, r.Tenant
	l.background.Go(func() {
		select {
		case <-l.ctx.Done():
		case <-detached:
		case <-in.Done():
			ctx, cancel := detachedContext(l.ctx)
			defer cancel()
			_, err := l.recordEnd(ctx, tenant, id, in)
			if exit := in.Exit(); err == nil && exit != nil && exit.Reason == brig.Saved {
				err = l.recordLateSave(tenant, id, in)
			}
			if err != nil && brig.KindOf(err) != brig.NotFound {
				l.Log.Error("failed to record the end of a sandbox", "sandbox", id, "err", err)
			}
		}
	})
}

// unregister unregisters an instance that has ended permanently, and releases
// all resources that belong to it.
func (l *lifecycle) unregister(id brig.ID) {
	l.detachInstance(id)
	l.announceEnd(id)
	l.dropUses(id)
}

// detachInstance unregisters an instance, and releases this server's resources
// for it. The instance itself is not changed.
func (l *lifecycle) detachInstance(id brig.ID) {
	l.network.endEgress(id)
	detached := l.sandboxes.takeInstance(id)
	if detached.detached != nil {
		close(detached.detached)
	}
	l.releaseBackend(detached.backend)
	detached.egress.close()
	l.network.recordLastRefusals(detached.refusals)
	detached.contexts.close()
	detached.processes.removeAll()
	detached.carried.release()
	detached.idlePauser.end()
	detached.reservation.Release()
}

// SetEgress implements brig.Service.
func (l *lifecycle) SetEgress(ctx context.Context, name string, rules brig.Egress) (out *brig.Sandbox, err error) {
	same := rules.Bandwidth == brig.SameBandwidth
	err = l.withInstance(ctx, brig.OpSetEgress, name, func(v *call, in brig.Instance) error {
		if same {
			rules.Bandwidth = v.rec.Spec.Egress.Bandwidth
		}
		if err := l.network.checkEgress(v.actor, &rules); err != nil {
			return err
		}
		backend, err := l.providers.backendOf(&v.rec.Sandbox)
		if err != nil {
			return err
		}
		if err := checkRules(l.providers.capabilities(backend), &rules); err != nil {
			return err
		}
		w := l.network.egressOf(v.rec.ID)
		w.changing.Lock()
		defer w.changing.Unlock()
		var had brig.Egress
		rec, err := l.updateRecord(ctx, v.rec.Tenant, v.rec.ID, func(r *brig.Record) error {
			if same { // the bandwidth may have changed since the record was read
				rules.Bandwidth = r.Spec.Egress.Bandwidth
			}
			had, r.Spec.Egress = r.Spec.Egress, rules
			return nil
		})
		if err != nil {
			return err
		}
		switch isOpen := w.current() != nil; {
		case !isOpen && len(rules.Rules) > 0:
			if err := l.network.openEgressLocked(ctx, w, rec, in); err != nil {
				return errors.Join(err, l.restoreRules(ctx, v.rec, had))
			}
		case isOpen && len(rules.Rules) == 0:
			w.drop(func() { l.network.countLast(v.rec.ID, w) })
		case isOpen:
			w.setRules(rules)
		}
		out = &rec.Sandbox
		return nil
	})
	return out, err
}

// restoreRules restores the former rules in the record of a sandbox if the new
// rules could not be applied. A rejected request must have no effect.
func (l *lifecycle) restoreRules(ctx context.Context, rec *brig.Record, had brig.Egress) error {
	_, err := l.updateRecord(context.WithoutCancel(ctx), rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Spec.Egress = had
		return nil
	})
	return err
}

// CommitWorkspace implements brig.Service.
func (l *lifecycle) CommitWorkspace(ctx context.Context, sandbox string) (out *brig.WorkspaceCommit, err error) {
	err = l.withInstance(ctx, brig.OpCommitWorkspace, sandbox, func(v *call, in brig.Instance) error {
		use := v.rec.Spec.Workspace
		v.addDetail(brig.DetailWorkspace, use.Name)
		switch {
		case use.Name == "":
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q has no workspace", v.rec.Spec.Name).
				WithHint("create one with a workspace")
		case use.Mode == brig.WorkspaceReadOnly:
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q has its workspace to read only", v.rec.Spec.Name).
				WithHint("create one with the mode overlay or direct")
		}
		if out, err = l.workspaces.commit(ctx, v.rec, in, v.actor.Name); err == nil && out.Version != nil {
			v.addDetail(brig.DetailVersion, strconv.Itoa(out.Version.Number))
		}
		return err
	})
	return out, err
}

// Logs implements brig.Service.
func (l *lifecycle) Logs(ctx context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	return do(ctx, l.gate, brig.OpLogs, name, func(v *call) (_ io.ReadCloser, err error) {
		if o.Tail < 0 {
			return nil, brig.InvalidField("tail", "%d is negative", o.Tail).WithHint("give a number of lines, or leave it out for all")
		}
		in := l.instance(v.rec.ID)
		if in == nil {
			if in, err = l.providers.recoverInstance(ctx, v.rec); err != nil {
				return nil, err
			}
		}
		if o.Follow {
			return l.followLog(ctx, v, in, o)
		}
		read := in.Logs
		if o.Times {
			read = in.TimedLogs
		}
		all, err := read(ctx)
		if err != nil || o.Tail == 0 {
			return all, err
		}
		last, err := read(ctx)
		if err != nil {
			all.Close()
			return nil, err
		}
		return tailLines(ctx, all, last, o.Tail)
	})
}
