package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
)

// forkOrigin is the state from which copies start.
type forkOrigin struct {
	save       *brig.Save
	id         brig.SaveID
	executions int    // number of processes in the save
	release    func() // called when no copy needs the save anymore
}

// prepareOrigin returns the state of a sandbox for copies. For a paused sandbox it is the existing
// save, and the sandbox cannot be resumed until release is called. Otherwise it is a new save,
// which release removes.
func (f *forks) prepareOrigin(ctx context.Context, saver brig.Saver, backend *placement.Backend, rec *brig.Record) (_ *forkOrigin, err error) {
	if rec.State == brig.Paused {
		o, err := f.sharePausedOrigin(ctx, saver, rec)
		if o != nil || err != nil {
			return o, err
		}
		// The sandbox was resumed before.
	}
	id := brig.SaveID(newID())
	o := &forkOrigin{id: id, release: func() { f.pauser.discardSave(ctx, saver, id, "sandbox", rec.ID) }}
	if o.save, o.executions, err = f.saveOrigin(ctx, saver, backend, rec, id, skipSlot); err != nil {
		o.release()
		return nil, err
	}
	return o, nil
}

// sharedOrigin is the save of a paused sandbox while concurrent forks use it.
type sharedOrigin struct {
	joinUntil time.Time
	users     int
	ready     chan struct{} // closed after origin and err are set
	origin    *forkOrigin   // nil if the sandbox is not paused any more
	err       error
}

// maxJoin is the time for which forks may join one that has begun. A resume of the sandbox waits for
// all of them, so it must not wait for an endless sequence.
const maxJoin = time.Second

// sharePausedOrigin returns the save of a paused sandbox, which concurrent forks share. It returns nil
// if the sandbox is not paused any more.
func (f *forks) sharePausedOrigin(ctx context.Context, saver brig.Saver, rec *brig.Record) (*forkOrigin, error) {
	for {
		shared, leads := f.joinOrigin(rec.ID)
		if leads {
			shared.origin, shared.err = f.preparePausedOrigin(ctx, saver, rec)
			if shared.origin == nil {
				f.hideOrigin(rec.ID, shared)
			}
			close(shared.ready)
		}
		select {
		case <-shared.ready:
		case <-ctx.Done():
			f.leaveOrigin(rec.ID, shared)
			return nil, context.Cause(ctx)
		}
		if shared.err == nil && shared.origin != nil {
			o := *shared.origin
			o.release = func() { f.leaveOrigin(rec.ID, shared) }
			return &o, nil
		}
		f.leaveOrigin(rec.ID, shared)
		if leads || shared.err == nil {
			return nil, shared.err
		}
		// The other fork failed, perhaps because its caller disconnected.
	}
}

// joinOrigin returns the origin that concurrent forks of a paused sandbox share. The caller that leads
// prepares it.
func (f *forks) joinOrigin(id brig.ID) (shared *sharedOrigin, leads bool) {
	f.originMu.Lock()
	defer f.originMu.Unlock()
	if shared = f.origins[id]; shared == nil || !time.Now().Before(shared.joinUntil) {
		shared, leads = &sharedOrigin{joinUntil: time.Now().Add(maxJoin), ready: make(chan struct{})}, true
		f.origins[id] = shared
	}
	shared.users++
	return shared, leads
}

// hideOrigin prevents other forks from joining an origin.
func (f *forks) hideOrigin(id brig.ID, shared *sharedOrigin) {
	f.originMu.Lock()
	defer f.originMu.Unlock()
	if f.origins[id] == shared {
		delete(f.origins, id)
	}
}

// leaveOrigin ends the use of an origin. The last user releases it.
func (f *forks) leaveOrigin(id brig.ID, shared *sharedOrigin) {
	f.originMu.Lock()
	shared.users--
	last := shared.users == 0
	if last && f.origins[id] == shared {
		delete(f.origins, id)
	}
	f.originMu.Unlock()
	if !last {
		return
	}
	<-shared.ready // the leader stays until then
	if shared.err == nil && shared.origin != nil {
		shared.origin.release()
	}
}

// preparePausedOrigin returns the save of a paused sandbox, which cannot be resumed until release is
// called. It returns nil if the sandbox is not paused any more.
func (f *forks) preparePausedOrigin(ctx context.Context, saver brig.Saver, rec *brig.Record) (*forkOrigin, error) {
	endMove, err := f.pauser.beginSave(ctx, rec)
	if err != nil {
		return nil, err
	}
	o := &forkOrigin{id: saveOf(rec.ID)}
	now, err := f.Store.Get(ctx, rec.Tenant, string(rec.ID))
	if err == nil && now.State == brig.Paused {
		o.executions = now.Pause.Executions
		o.save, err = saver.GetSave(ctx, o.id)
		if err == nil {
			err = f.unpackOrigin(ctx, saver, now)
		}
	}
	if err != nil || o.save == nil {
		endMove()
		return nil, err
	}
	o.release = func() {
		f.pauser.packs.removeUnpacked(ctx, saver, now)
		endMove()
	}
	return o, nil
}

// unpackOrigin unpacks the save of a paused sandbox. Unpacking is as much work as a creation, so it
// takes a creation slot, as a resume does.
func (f *forks) unpackOrigin(ctx context.Context, saver brig.Saver, rec *brig.Record) error {
	if rec.SaveKey == nil {
		return nil
	}
	release, err := f.capacity.Acquire(ctx, rec.Tenant, time.Now())
	if err != nil {
		return err
	}
	defer release()
	return f.pauser.packs.unpack(ctx, saver, rec)
}
