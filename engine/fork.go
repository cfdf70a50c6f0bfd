package engine

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/failpoint"
)

// restoredEnv is the variable of a sandbox with a script that runs in each copy before its callers
// can use it. The script can, for example, reseed the random generators of programs.
const restoredEnv = "BRIG_RESTORED"

// restoredTimeout is the time limit of the script in restoredEnv.
const restoredTimeout = 30 * time.Second

// maxFormer is the maximum number of earlier sandboxes whose secret placeholders a copy accepts.
const maxFormer = 16

// forks creates copies of running sandboxes.
type forks struct {
	*gate
	vault        *vault
	network      *network
	providers    *providers
	lifecycle    *lifecycle
	interpreters *interpreters
	pauser       *pauser
	machines     *machines
	volumes      *volumes

	originMu sync.Mutex                // guards the field below
	origins  map[brig.ID]*sharedOrigin // by paused sandbox
}

// Fork implements brig.Service. It rejects BuildRights, which only the engine may set.
func (f *forks) Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	if o.BuildRights {
		return nil, errBuildRights()
	}
	return f.forkSandbox(ctx, name, o, checkChanges)
}

// forkSandbox copies a sandbox for a caller or for the builder of templates. check decides whether the
// caller may change what o changes.
func (f *forks) forkSandbox(ctx context.Context, name string, o brig.ForkSpec, check func(*call, brig.ForkSpec) error) ([]*brig.Sandbox, error) {
	note := func(v *call) {
		v.addDetail(brig.DetailCount, strconv.Itoa(max(o.Count, 1)))
		if changes := changesOf(o); len(changes) > 0 {
			v.addDetail(brig.DetailChanges, strings.Join(changes, ","))
		}
	}
	return doWithDetails(ctx, f.gate, brig.OpFork, name, note, func(v *call) ([]*brig.Sandbox, error) {
		if err := v.checkGrant(cmp.Or(o.Name, "-")); err != nil {
			return nil, err
		}
		if err := check(v, o); err != nil {
			return nil, err
		}
		spec, n, err := f.completeFork(ctx, v, o)
		if err != nil {
			return nil, err
		}
		given, err := f.vault.grantsOfCopy(ctx, v.rec, spec)
		if err != nil {
			return nil, err
		}
		done, err := f.admitCopyMounts(ctx, v, &spec, o)
		if err != nil {
			return nil, err
		}
		defer done()
		if o.Paused {
			rec, err := f.forkPaused(ctx, v, spec, given)
			if err != nil {
				return nil, err
			}
			return []*brig.Sandbox{&rec.Sandbox}, nil
		}
		copies, err := f.fork(ctx, v, spec, n, given, o.Partial)
		if err != nil {
			return nil, err
		}
		out := make([]*brig.Sandbox, 0, n)
		for _, c := range copies {
			f.machines.fillEnforcement(&c.rec.Sandbox)
			out = append(out, &c.rec.Sandbox)
		}
		f.postponeEnd(ctx, v.rec, v.limitRange.MaxPause)
		return out, nil
	})
}

// completeFork checks a request, and returns the spec of the copies and their number. The caller
// must be allowed to create such a sandbox now, even though the original already exists.
func (f *forks) completeFork(ctx context.Context, v *call, o brig.ForkSpec) (spec brig.Spec, n int, err error) {
	if n = max(o.Count, 1); o.Count < 0 || n > brig.MaxForks {
		return spec, 0, brig.InvalidField("count", "%d is out of bounds", o.Count).WithHint("give 1 to %d", brig.MaxForks)
	}
	if n > 1 && o.Paused {
		return spec, 0, brig.InvalidField("count", "there is one paused copy at a time").WithHint("leave count out, and fork the paused copy")
	}
	if n > 1 && o.Name != "" {
		return spec, 0, brig.InvalidField("name", "%d copies cannot have one name", n).WithHint("leave name or count out")
	}
	if o.Name != "" && !brig.ValidName(o.Name) {
		return spec, 0, nameError("name", o.Name)
	}
	if !isFilesOnly(v.rec) {
		if err := checkMemoryCopy(v.rec, specOfCopy(v.rec.Spec, o)); err != nil {
			return spec, 0, err
		}
	}
	if spec, err = checkCopy(v.limitRange, specOfCopy(v.rec.Spec, o), o); err != nil {
		return spec, 0, err
	}
	if err := f.checkImage(ctx, v); err != nil {
		return spec, 0, err
	}
	if err := f.network.checkEgress(v.actor, &spec.Egress); err != nil {
		return spec, 0, err
	}
	if err := f.vault.findSecrets(ctx, v.actor.Tenant, spec.Secrets); err != nil {
		return spec, 0, err
	}
	if len(spec.Secrets) > 0 && len(v.rec.Former) >= maxFormer {
		return spec, 0, brig.Errorf(brig.FailedPrecondition, "sandbox %q is a copy of a copy, %d times over", v.rec.Spec.Name, maxFormer).
			WithHint("fork an earlier sandbox, or create one; without secrets there is no such limit")
	}
	return spec, n, checkSavable(v.rec, "forked", isFilesOnly(v.rec))
}

// checkImage checks that the tenant may still use the image of a sandbox. CheckRef accepts every
// digest, so the image of a digest is checked, too. The image of a name is not checked: the name
// may refer to a newer image now, for example after an update of the host.
func (f *forks) checkImage(ctx context.Context, v *call) error {
	ref := v.rec.Spec.Image
	if err := v.tenantLimits.CheckRef(ref); err != nil || !strings.HasPrefix(ref, "sha256:") {
		return err
	}
	_, backend, err := f.providers.saverOf(v.rec)
	if err != nil {
		return err
	}
	img, err := f.providers.imageAt(ctx, backend, v.rec.Digest)
	if err != nil {
		return err
	}
	return v.tenantLimits.CheckImage(img)
}

// fork makes n copies of the sandbox of a call. If it fails, it leaves no copy behind, and the
// original is unchanged. If partial is set, it may make fewer copies.
func (f *forks) fork(ctx context.Context, v *call, spec brig.Spec, n int, given []brig.Secret, partial bool) (_ []*pendingCopy, err error) {
	saver, backend, err := f.providers.saverOf(v.rec)
	if err != nil {
		return nil, err
	}
	if err := f.capacity.CheckAdmission(v.rec.Tenant); err != nil {
		return nil, err
	}
	copies, err := f.reserve(v, backend, spec, n, given, partial)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := detachedContext(ctx)
		defer cancel()
		for _, c := range copies {
			f.discard(ctx, c)
		}
	}()
	o, err := f.prepareOrigin(ctx, saver, backend, v.rec)
	failpoint.Hit("fork.saved")
	if err != nil {
		return nil, err
	}
	if err = checkOrigin(v, o, spec); err == nil {
		err = f.reserveExecutions(v, o, copies)
	}
	if err == nil {
		err = f.restoreAll(ctx, saver, o, copies)
	}
	o.release()
	failpoint.Hit("fork.removed")
	if err != nil {
		return nil, err
	}
	for _, c := range copies {
		c.rec.State, c.rec.Handle, c.rec.Notes = brig.Running, c.in.Handle(), append(c.in.Notes(), c.notes...)
		if err := f.Store.Put(ctx, c.rec, f.copyEvent(v, c.rec)); err != nil {
			return nil, err
		}
		failpoint.Hit("fork.running")
	}
	for _, c := range copies {
		f.lifecycle.adopt(c.rec, backend, c.in)
		f.lifecycle.startPauser(ctx, c.rec, c.in)
		f.lifecycle.holdSession(ctx, c.rec)
	}
	return copies, nil
}

// discardSave removes a save that no copy needs anymore. The log attributes in origin name the
// origin of the save.
func (p *pauser) discardSave(ctx context.Context, saver brig.Saver, id brig.SaveID, origin ...any) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	if err := saver.RemoveSave(ctx, id); err != nil { // the next start of the server removes it
		p.Log.WarnContext(ctx, "failed to remove a save that copies were made from", append(origin, "err", err)...)
	}
}

// pendingCopy is a copy that is being made.
type pendingCopy struct {
	*machine // the field in is nil until the copy is restored
	taken    *allocation
}

// reserve reserves the quota and the capacity of the provider for all copies.
func (f *forks) reserve(v *call, backend *placement.Backend, spec brig.Spec, n int, given []brig.Secret, partial bool) (copies []*pendingCopy, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, c := range copies {
			c.taken.release()
		}
	}()
	limit := f.backends.Current().Terms[backend.ID].Max
	for range n {
		alloc, err := f.allocateNew(v, backend, limit, spec)
		if partial && len(copies) > 0 && (brig.KindOf(err) == brig.RateLimited || brig.KindOf(err) == brig.Unavailable) {
			break
		}
		if err != nil {
			return copies, err
		}
		copies = append(copies, &pendingCopy{machine: &machine{rec: newCopy(v.rec, backend, spec, given), backend: backend}, taken: alloc})
	}
	return copies, nil
}

// reserveExecutions reserves the quota for the processes of all copies.
func (f *forks) reserveExecutions(v *call, o *forkOrigin, copies []*pendingCopy) (err error) {
	for _, c := range copies {
		if c.taken.executions, err = f.pauser.programs.reserveCarried(v.account, c.rec, o.executions, true); err != nil {
			return err // discard releases the reservations of the other copies
		}
	}
	return nil
}

// newCopy returns the record of a copy. given is the state of its secrets.
func newCopy(origin *brig.Record, backend *placement.Backend, spec brig.Spec, given []brig.Secret) *brig.Record {
	rec := &brig.Record{Sandbox: brig.Sandbox{
		ID: newID(), Tenant: origin.Tenant, Spec: spec, State: brig.Creating, Origin: origin.ID,
		Provider: origin.Provider, Route: brig.Route{Provider: backend.ID, Reason: "fork"}, Digest: origin.Digest,
	}}
	if spec.Name == "" {
		rec.Spec.Name = newName(origin.Spec.Name[:min(len(origin.Spec.Name), 50)] + "-")
	}
	if len(spec.Secrets) > 0 {
		rec.Former = append(slices.Clone(origin.Former), origin.ID)
		rec.Given = slices.Clone(given)
	}
	return rec
}

// acquireSlot takes a creation slot, as capacity.Limiter.Acquire does.
type acquireSlot func(ctx context.Context, tenant string, since time.Time) (release func(), err error)

// skipSlot is the acquireSlot for a save whose copies take their own slots.
func skipSlot(context.Context, string, time.Time) (func(), error) { return func() {}, nil }

// saveOrigin saves a running sandbox, which continues to run. Calls to the sandbox wait only for
// the save, which completes even if the caller disconnects. The slot is held only during the save,
// because the guest determines how long its interpreters take to park. saveOrigin also returns the
// number of processes in the save.
func (f *forks) saveOrigin(ctx context.Context, saver brig.Saver, backend *placement.Backend, rec *brig.Record, to brig.SaveID, acquire acquireSlot) (_ *brig.Save, executions int, err error) {
	endMove, err := f.pauser.beginSave(ctx, rec)
	if err != nil {
		return nil, 0, err
	}
	defer endMove()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if rec, err = f.Store.Get(ctx, rec.Tenant, string(rec.ID)); err != nil {
		return nil, 0, err
	}
	in, err := f.lifecycle.runningInstance(rec)
	if err != nil {
		return nil, 0, err
	}
	if err := f.pauser.prepareSave(ctx, saver, rec, in); err != nil {
		return nil, 0, err
	}
	// No call can use the sandbox during this wait.
	soon, cancelWait := context.WithTimeoutCause(ctx, capacity.ServerMaxWait, brig.Errorf(brig.RateLimited, "no copy could be made within %v", capacity.ServerMaxWait))
	release, err := acquire(soon, rec.Tenant, time.Now())
	cancelWait()
	if err != nil {
		return nil, 0, err
	}
	defer release()
	defer f.keepRefusals(rec.ID, in)()
	putBack := f.keepReservation(rec.ID)
	save, err := f.pauser.saveDetached(ctx, saver, rec, in, to, brig.SaveOptions{Stay: true})
	putBack()
	release() // the rest waits for the guest's interpreters
	if err != nil {
		_, err = f.pauser.handleFailedSave(ctx, saver, backend, rec, in, err, nil)
		return nil, 0, err
	}
	executions = f.sandboxes.get(rec.ID).carried.number()
	return save, executions, f.pauser.continueInstance(ctx, rec, backend, in, attachment{continued: true})
}

// keepRefusals keeps the counts of a sandbox's refusals while its instance is detached.
// The returned function restores them.
func (f *forks) keepRefusals(id brig.ID, in brig.Instance) (restore func()) {
	var was *refusals
	f.sandboxes.update(id, func(s *sandbox) { was, s.refusals = s.refusals, nil })
	return func() {
		f.sandboxes.update(id, func(s *sandbox) {
			if s.instance == in {
				s.refusals, was = was, nil
			}
		})
		f.network.recordLastRefusals(was) // the instance has ended
	}
}

// keepReservation keeps the reservation of a sandbox while its instance is detached. Otherwise,
// another sandbox could use the quota. The returned function puts the reservation back.
func (f *forks) keepReservation(id brig.ID) (putBack func()) {
	var was *quota.Reservation
	var w *egressSession
	f.sandboxes.update(id, func(s *sandbox) { was, s.reservation, w = s.reservation, nil, s.egress })
	return func() {
		f.sandboxes.update(id, func(s *sandbox) { s.reservation, was = was, s.reservation })
		if w != nil {
			f.network.countEgress(id, w) // its last bytes could not be charged while the session was detached
		}
		was.Release() // nil, unless another call has reserved since
	}
}

// restoreAll records and restores all copies, up to one per CPU concurrently. After the first
// error, it begins no further restores.
func (f *forks) restoreAll(ctx context.Context, saver brig.Saver, o *forkOrigin, copies []*pendingCopy) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	next := make(chan *pendingCopy)
	for range min(len(copies), runtime.NumCPU()) {
		work.Go(func() {
			for c := range next {
				if err := f.restoreCopy(ctx, saver, o, c); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, c := range copies {
		select {
		case next <- c:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	work.Wait()
	return context.Cause(ctx)
}

// restoreCopy records and restores one copy with its own identity, network and random numbers. The
// copy remains in the state Creating, so no other call can use it yet.
func (f *forks) restoreCopy(ctx context.Context, saver brig.Saver, o *forkOrigin, c *pendingCopy) error {
	release, err := f.capacity.Acquire(ctx, c.rec.Tenant, time.Now())
	if err != nil {
		return err
	}
	defer release()
	begun := time.Now()
	now := f.Now().UTC()
	c.rec.Created, c.rec.Expires = now, now.Add(c.rec.Spec.TTL)
	if err := f.Store.Put(ctx, c.rec); err != nil {
		return err
	}
	failpoint.Hit("fork.recorded")
	spec := c.rec.Spec
	spec.Image, spec.Env, spec.Share = c.rec.Digest, withCA(spec), c.rec.Tenant
	allowance := saveAllowance(spec)
	if o.save.FilesOnly {
		allowance += f.pauser.bootAllowance(c.rec)
		if spec, err = f.pauser.bootSpec(ctx, c.rec, spec); err != nil {
			return err
		}
	}
	c.in, err = saver.Restore(ctx, o.id, c.rec.ID, spec, c.rec.Expires.Add(allowance))
	f.reportCreation(c.rec.Provider, brig.MadeCaller, begun, err)
	failpoint.Hit("fork.restored")
	if err != nil {
		c.in = nil
		return err
	}
	c.taken.reservation.Start()            // the guest's programs run, even those of a copy that is discarded
	f.track(c.rec.ID, c.taken.reservation) // before the network, whose traffic is charged
	release()                              // the guest determines how long the rest takes
	if o.save.FilesOnly {
		if c.notes, err = f.pauser.bootPrograms(ctx, c.machine); err == nil {
			err = runRestored(ctx, c.rec, c.in)
		}
		return err
	}
	if err := f.machines.verifyEnforcement(ctx, c.machine); err != nil {
		return err
	}
	if err := f.network.openEgress(ctx, c.rec, c.in); err != nil {
		return err
	}
	return f.interpreters.continueCopy(ctx, c.machine, c.taken.executions, o.save.At)
}

// continueCopy takes over the programs of a copy that was restored from a save of the time saved.
// executions are the reservations of its processes.
func (i *interpreters) continueCopy(ctx context.Context, m *machine, executions []*quota.Reservation, saved time.Time) error {
	i.holdCarried(m.rec.ID, executions)
	how := attachment{continued: true, copied: true, paused: max(i.Now().Sub(saved), 0)}
	if err := i.reattachProcesses(ctx, m.rec, m.in, how); err != nil {
		return err
	}
	return runRestored(ctx, m.rec, m.in)
}

// runRestored runs the sandbox's script for copies, if there is one.
func runRestored(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	script := rec.Spec.Env[restoredEnv]
	if script == "" {
		return nil
	}
	captured := output.NewCapture(maxQuotedOutput)
	r, err := in.Exec(ctx, newExecID(), applySandboxDefaults(rec.Spec, brig.Command{Shell: script, Timeout: restoredTimeout}), brig.IO{Stdout: captured, Stderr: captured})
	if err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return brig.Errorf(brig.FailedPrecondition, "the script in %s ended with the exit code %d in a copy: %q", restoredEnv, r.ExitCode, string(captured.Output().Head)).
			WithHint("make it succeed in every copy, or leave the variable out")
	}
	return nil
}

// copyEvent returns the audit event of a copy. The event of the call itself describes the original.
func (f *forks) copyEvent(v *call, rec *brig.Record) brig.Event {
	a := v.nestedAudit()
	a.id = rec.ID
	a.addActor()
	a.addRecord(rec)
	a.addDetail(brig.DetailOrigin, string(rec.Origin))
	return a.event(brig.Finish, nil)
}

// discard removes a copy that was not completed.
func (f *forks) discard(ctx context.Context, c *pendingCopy) {
	cancelAll(c.taken.executions)    // unregister would count them as started
	f.lifecycle.unregister(c.rec.ID) // charges its last traffic to the reservation
	c.taken.release()                // the reservation of a restored copy is released already
	if c.rec.Rev == 0 && c.in == nil {
		return // it was not recorded
	}
	f.machines.rollback(ctx, c.machine)
}
