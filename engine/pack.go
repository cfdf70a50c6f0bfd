package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/seal"
)

const (
	// defaultPackAfter is the default of Options.PackAfter.
	defaultPackAfter = time.Minute
	// packRetryDelay is the delay before a failed pack is retried.
	packRetryDelay = 10 * time.Minute
	// packTimeout is how long a pack waits for a resume or fork of its sandbox.
	packTimeout = time.Second
)

// packs compresses and encrypts the saves of sandboxes that have been paused for PackAfter, one at
// a time. Each save has its own key, which is encrypted with the master key and stored in the
// sandbox's record. The provider never receives the master key.
type packs struct {
	*gate
	vault     *vault
	providers *providers

	mu      sync.Mutex // guards waiting
	waiting map[brig.ID]packJob
}

// packJob is a save that will be packed.
type packJob struct {
	tenant string
	due    time.Time
}

// schedule schedules a pack of the save of a paused sandbox, which also removes the files of an
// earlier unpack. It has no effect if the sandbox is no longer paused at that time.
func (p *packs) schedule(rec *brig.Record, after time.Duration) {
	if p.Options.Keys == nil || p.PackAfter < 0 && rec.SaveKey == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[rec.ID] = packJob{rec.Tenant, time.Now().Add(max(after, 0))}
}

// isWaiting reports whether a pack of a sandbox is scheduled.
func (p *packs) isWaiting(id brig.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.waiting[id]
	return ok
}

// takeDue removes a due save from the list and returns it.
func (p *packs) takeDue() (brig.ID, packJob, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, job := range p.waiting {
		if !job.due.After(time.Now()) {
			delete(p.waiting, id)
			return id, job, true
		}
	}
	return "", packJob{}, false
}

// run packs saves until the engine ends.
func (p *packs) run() {
	p.runEvery(min(max(p.PackAfter/4, 50*time.Millisecond), 10*time.Second), func() {
		for p.ctx.Err() == nil {
			id, job, ok := p.takeDue()
			if !ok {
				return
			}
			rec, err := p.Store.Get(p.ctx, job.tenant, string(id))
			if err != nil || rec.State != brig.Paused {
				continue // the sandbox was removed or resumed
			}
			if err := p.pack(p.ctx, rec); err != nil && p.ctx.Err() == nil {
				p.Log.WarnContext(p.ctx, "failed to pack the save of a paused sandbox; retrying", "sandbox", id, "err", err)
				p.schedule(rec, packRetryDelay)
			}
		}
	})
}

// pack packs the save of a sandbox. A resume or a fork of the sandbox interrupts the pack instead
// of waiting for it.
func (p *packs) pack(ctx context.Context, rec *brig.Record) error {
	short, cancel := context.WithTimeout(ctx, packTimeout)
	defer cancel()
	leave, err := p.usesOf(rec.ID).enter(short)
	if err != nil {
		p.schedule(rec, p.PackAfter)
		return nil
	}
	defer p.dropUses(rec.ID)
	defer leave()
	ctx, done := p.endedByPause(ctx, rec.ID)
	defer done()
	if rec, err = p.Store.Get(ctx, rec.Tenant, string(rec.ID)); err != nil || rec.State != brig.Paused {
		return err
	}
	saver, _, err := p.providers.saverOf(rec)
	if err != nil {
		return err
	}
	rec, key, err := p.ensureKey(ctx, rec)
	failpoint.Hit("pack.key")
	if err != nil {
		return err
	}
	a, err := p.getAccount(ctx, rec.Tenant)
	if err != nil {
		return err
	}
	defer a.AddStorage(rec.Pause.Bytes)() // both the packed and the unpacked save exist for a while
	began := time.Now()
	save, err := saver.Pack(ctx, saveOf(rec.ID), key)
	if ctx.Err() != nil && p.ctx.Err() == nil {
		p.schedule(rec, p.PackAfter) // the sandbox may be paused again, or was forked
		return nil
	}
	if err != nil {
		return err
	}
	before := rec.Pause.Bytes
	rec, err = p.updateRecord(context.WithoutCancel(ctx), rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.Pause != nil {
			r.Pause.Bytes = save.Bytes
		}
		return nil
	})
	failpoint.Hit("pack.recorded")
	if err != nil || rec.Pause == nil {
		return err
	}
	reservation := p.sandboxes.get(rec.ID).reservation
	p.track(rec.ID, a.ReservePaused(rec.Pause.Bytes))
	reservation.Release()
	p.Log.DebugContext(ctx, "packed a save", "sandbox", rec.ID, "bytes", before, "packed", save.Bytes, "took", time.Since(began))
	return nil
}

// saveKeyLocation returns the location to which the sealed key of a save is bound.
func saveKeyLocation(rec *brig.Record) []string { return []string{"save", rec.Tenant, string(rec.ID)} }

// ensureKey returns the key of a sandbox's save. It creates and records a key if there is none.
func (p *packs) ensureKey(ctx context.Context, rec *brig.Record) (*brig.Record, []byte, error) {
	if rec.SaveKey != nil {
		key, err := p.openKey(rec)
		return rec, key, err
	}
	p.vault.resealMu.RLock()
	defer p.vault.resealMu.RUnlock()
	key := seal.NewKey()
	name, sealed := p.Options.Keys.Seal(key, saveKeyLocation(rec)...)
	rec, err := p.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State != brig.Paused || r.SaveKey != nil {
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q is %s", r.Spec.Name, r.State)
		}
		r.SaveKey = &brig.SealedKey{Key: name, Sealed: sealed}
		return nil
	})
	return rec, key, err
}

// openKey decrypts the key of a save.
func (p *packs) openKey(rec *brig.Record) ([]byte, error) {
	err := seal.ErrUnknownKey
	if p.Options.Keys != nil {
		var key []byte
		if key, err = p.Options.Keys.Open(rec.SaveKey.Key, rec.SaveKey.Sealed, saveKeyLocation(rec)...); err == nil {
			return key, nil
		}
	}
	if errors.Is(err, seal.ErrUnknownKey) {
		return nil, brig.Errorf(brig.FailedPrecondition, "the memory and files of sandbox %q were encrypted with a master key that this server does not have", rec.Spec.Name).
			WithHint("start the server with the key that it had").Because(err)
	}
	return nil, brig.Errorf(brig.FailedPrecondition, "the memory and files of sandbox %q cannot be decrypted: its record was changed", rec.Spec.Name).
		WithHint("restore the database from a backup, and find out who wrote to it").Because(err)
}

// unpack prepares the save of a paused sandbox for restores. The caller has begun a move of the
// sandbox, and holds a creation slot. If the sandbox stays paused, the caller calls removeUnpacked,
// because the files do not count against the tenant's storage. If the caller fails to do so, the
// next pack removes the files, and further calls of unpack do not delay this pack.
func (p *packs) unpack(ctx context.Context, saver brig.Saver, rec *brig.Record) error {
	if rec.SaveKey == nil {
		return nil
	}
	key, err := p.openKey(rec)
	if err != nil {
		return err
	}
	if !p.isWaiting(rec.ID) {
		p.schedule(rec, p.PackAfter)
	}
	err = saver.Unpack(ctx, saveOf(rec.ID), key)
	failpoint.Hit("resume.unpacked")
	return err
}

// removeUnpacked removes the files of unpack when no restore needs them anymore. The caller has
// begun a move of the sandbox.
func (p *packs) removeUnpacked(ctx context.Context, saver brig.Saver, rec *brig.Record) {
	if rec.SaveKey == nil {
		return
	}
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	save, err := saver.GetSave(ctx, saveOf(rec.ID))
	if brig.KindOf(err) == brig.NotFound || err == nil && !save.Packed {
		return // the save is unpacked, and must not become packed
	}
	var key []byte
	if err == nil {
		key, err = p.openKey(rec)
	}
	if err == nil {
		_, err = saver.Pack(ctx, saveOf(rec.ID), key) // only removes the files
	}
	if err != nil { // the next pack removes them
		p.Log.WarnContext(ctx, "failed to remove the unpacked files of a paused sandbox", "sandbox", rec.ID, "err", err)
	}
}

// reseal encrypts the keys of all saves with the newest master key. The saves
// themselves do not change.
func (p *packs) reseal(ctx context.Context) error {
	var old []*brig.Record
	if err := p.Store.All(ctx, func(r *brig.Record) error {
		if r.SaveKey != nil && r.SaveKey.Key != p.Options.Keys.Primary() {
			old = append(old, r)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, rec := range old {
		key, err := p.openKey(rec)
		if err != nil {
			p.Log.ErrorContext(ctx, "failed to re-encrypt the key of a save", "sandbox", rec.ID, "err", err)
			continue
		}
		name, sealed := p.Options.Keys.Seal(key, saveKeyLocation(rec)...)
		_, err = p.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
			if r.SaveKey != nil && r.SaveKey.Key == rec.SaveKey.Key {
				r.SaveKey = &brig.SealedKey{Key: name, Sealed: sealed}
			}
			return nil
		})
		if err != nil && brig.KindOf(err) != brig.NotFound {
			return err
		}
	}
	return nil
}
