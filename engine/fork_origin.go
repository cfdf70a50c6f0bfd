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
		endMove, err := f.pauses.beginSave(ctx, rec)
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
		if err == nil && o.save != nil {
			o.release = func() {
				f.pauses.packs.removeUnpacked(ctx, saver, now)
				endMove()
			}
			return o, nil
		}
		endMove()
		if err != nil {
			return nil, err
		}
		// The sandbox was resumed before beginMove.
	}
	id := brig.SaveID(newID())
	o := &forkOrigin{id: id, release: func() { f.pauses.discardSave(ctx, saver, id, "sandbox", rec.ID) }}
	if o.save, o.executions, err = f.saveOrigin(ctx, saver, backend, rec, id, skipSlot); err != nil {
		o.release()
		return nil, err
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
	return f.pauses.packs.unpack(ctx, saver, rec)
}
