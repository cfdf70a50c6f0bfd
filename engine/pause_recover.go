package engine

import (
	"context"

	"github.com/brig-run/brig"
)

// recoverPaused checks whether a paused sandbox has an instance, because a server may have died
// between a restore and its record. If there is an instance, recoverPaused records that the sandbox
// runs.
func (p *pauser) recoverPaused(ctx context.Context, rec *brig.Record) (running bool, err error) {
	if isFilesOnly(rec) { // the server may have died after it recorded the pause
		p.endKeptExecs(ctx, rec)
	}
	in, err := p.providers.recoverInstance(ctx, rec)
	if brig.KindOf(err) == brig.NotFound || err == nil && hasEnded(in) {
		return false, p.trackPaused(ctx, rec)
	}
	if err != nil {
		return false, err
	}
	if rec.Copied || isFilesOnly(rec) {
		// The server may have died before the instance got a new identity and new random numbers,
		// or before its start command ran. The save still exists, so the instance is discarded.
		if err := in.Stop(ctx, 0, brig.Saved); err != nil {
			return false, err
		}
		return false, p.trackPaused(ctx, rec)
	}
	a, err := p.getAccount(ctx, rec.Tenant)
	if err != nil {
		return false, err
	}
	limitRange, _ := a.CallLimits()
	now := p.Now().UTC()
	out, err := p.updateRecordWith(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.State, r.Expires = brig.Running, leaseAfterPause(r, now, limitRange.MaxLife)
		r.PausedFor += now.Sub(r.Pause.At)
		r.Pause, r.SaveKey = nil, nil
		return nil
	}, p.resumedByUse(ctx))
	if err == nil {
		*rec = *out
	}
	return true, err
}

// recoverSave records that a sandbox is paused, if its server died after the
// save.
func (p *pauser) recoverSave(ctx context.Context, rec *brig.Record) error {
	p.lifecycle.detachInstance(rec.ID) // releases its reservation as a running sandbox
	saver, _, err := p.providers.saverOf(rec)
	if err != nil {
		return err
	}
	_, err = p.recordSave(ctx, saver, rec, nil)
	return err
}

// recordLateSave records that a sandbox is paused, if its attached instance has ended with a save.
// An earlier server began the pause, or the pause has lost the connection to the instance.
// recordLateSave first waits for the calls that still use the instance.
func (p *pauser) recordLateSave(tenant string, id brig.ID, in brig.Instance) error {
	defer p.dropUses(id)
	for {
		endMove, users, err := p.usesOf(id).beginMove(p.ctx, cleanupTimeout)
		if err != nil {
			return err
		}
		if users == 0 {
			defer endMove()
			break
		}
		if p.instance(id) != in {
			return nil
		}
	}
	if p.instance(id) != in {
		return nil
	}
	ctx, cancel := detachedContext(p.ctx)
	defer cancel()
	rec, err := p.Store.Get(ctx, tenant, string(id))
	if err != nil || rec.State != brig.Running {
		return err
	}
	return p.recoverSave(ctx, rec)
}

// recordSave records that a sandbox is paused, after its instance ended with a save.
func (p *pauser) recordSave(ctx context.Context, saver brig.Saver, rec *brig.Record, events eventsOf) (*brig.Record, error) {
	save, err := saver.GetSave(ctx, saveOf(rec.ID))
	if err != nil {
		return nil, err
	}
	return p.recordPause(ctx, rec, save, events)
}
