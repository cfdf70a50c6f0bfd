package workspace

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// ledger counts the storage that a tenant's versions use: the bytes of every
// referenced content and manifest, each once. A commit reserves new bytes
// before it writes them, so that two concurrent commits cannot both use the
// last byte. After the commit, it releases the unreferenced bytes, except those
// already written, which count until the next sweep.
type ledger struct {
	mu            sync.Mutex       // guards the fields below; held while versions are read
	named         map[string]int64 // bytes by digest; nil if not loaded
	total         int64            // sum of named
	reserved      map[string]*reservation
	reservedBytes int64 // bytes that are reserved but not in named
	unswept       bool  // unreferenced objects may exist, so a sweep is needed
	trimmed       bool  // old versions were removed, but their contents count until a sweep
}

// reservation is a content that running commits are going to reference.
// Without holders, it is a content that failed commits have left in the store.
type reservation struct {
	size    int64
	holders int
}

// ledger returns the ledger of a tenant.
func (s *Store) ledger(tenant string) *ledger {
	l, _ := s.ledgers.LoadOrStore(tenant, &ledger{reserved: map[string]*reservation{}})
	return l.(*ledger)
}

// forget discards the loaded state, so that the next use reads it again.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.named, l.total = nil, 0
}

// load reads the contents that versions reference, unless they are already
// loaded. The caller holds l.mu.
func (s *Store) load(ctx context.Context, tenant string, l *ledger) error {
	if l.named != nil {
		return nil
	}
	all, err := s.list(ctx, tenant)
	if err != nil {
		return err
	}
	l.unswept = l.unswept || l.trimmed
	l.named, l.total = map[string]int64{}, 0
	for _, w := range all {
		if w.ID == "" {
			continue // the record of the name is damaged
		}
		if err = s.loadVersions(ctx, tenant, w.ID, l); err != nil {
			l.named = nil
			return unavailableError(err)
		}
	}
	l.reservedBytes = 0
	for digest, r := range l.reserved {
		if _, ok := l.named[digest]; !ok {
			l.reservedBytes += r.size
		}
	}
	return nil
}

func (s *Store) loadVersions(ctx context.Context, tenant, id string, l *ledger) error {
	numbers, err := s.listNumbers(ctx, tenant, id)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		r, err := s.readVersion(ctx, tenant, id, n)
		if isDataLoss(err) {
			l.add(versionKey(tenant, id, n), versionCharge) // the contents of a damaged version are unknown
			continue
		}
		if err != nil {
			return err
		}
		l.add(versionKey(tenant, id, n), versionCharge)
		for _, digest := range r.manifests() {
			if _, ok := l.named[digest]; ok {
				continue
			}
			contents := map[string]int64{}
			size, err := s.scan(ctx, tenant, digest, func(e *entry) error {
				if e.Size > 0 {
					contents[e.digest] = e.Size
				}
				return nil
			})
			if err != nil && !isDataLoss(err) {
				return err // without this size, the sum would be wrong until the next sweep
			}
			l.add(digest, size)
			if err != nil { // the contents are unknown, except for their total size
				l.add("damaged "+digest, r.Size)
				continue
			}
			for digest, size := range contents {
				l.add(digest, size)
			}
		}
	}
	return nil
}

// add adds a content. The caller holds l.mu.
func (l *ledger) add(digest string, size int64) {
	if _, ok := l.named[digest]; !ok {
		l.named[digest] = size
		l.total += size
	}
}

// versionCharge is the number of bytes that each version counts in addition to
// its contents, for the small file of its record. Without this charge, versions
// that share all their contents would be free.
const versionCharge = 4 << 10

// versionName returns the name of a version's record in the ledger.
func versionName(r *record) string { return "version " + r.Mark }

// contents returns the sizes of the contents that a manifest references.
func (m manifest) contents() map[string]int64 {
	out := map[string]int64{}
	for _, e := range m {
		if e.Size > 0 {
			out[e.digest] = e.Size
		}
	}
	return out
}

// overQuotaError returns the error for a version that exceeds the quota.
func overQuotaError(quota int64) error {
	e := *brig.AsError(brig.QuotaExceededError("workspaces", brig.FormatBytes(quota), time.Minute))
	return e.WithHint("no version was created, and earlier ones are unchanged; remove workspaces that are not needed, keep less in this one, or ask the operator for a larger quota.workspaces")
}

// reserve reserves bytes for the contents of a capture.
func (c *Capture) reserve(ctx context.Context, contents map[string]int64) error {
	return c.s.reserve(ctx, c.tenant, c.quota, contents, c.holds)
}

// reserve reserves bytes for either all contents or none, and adds the
// contents to holds. Without a quota it does nothing.
func (s *Store) reserve(ctx context.Context, tenant string, quota int64, contents map[string]int64, holds map[string]bool) error {
	if quota <= 0 {
		return nil
	}
	l := s.ledger(tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.load(ctx, tenant, l); err != nil {
		return err
	}
	added := int64(0)
	for digest, size := range contents {
		if _, named := l.named[digest]; !named && l.reserved[digest] == nil {
			added += size
		}
	}
	if added > 0 && l.total+l.reservedBytes+added > quota {
		l.unswept = l.unswept || l.trimmed
		return overQuotaError(quota)
	}
	for digest, size := range contents {
		if _, named := l.named[digest]; named || holds[digest] {
			continue
		}
		if l.reserved[digest] == nil {
			l.reserved[digest] = &reservation{size: size}
			l.reservedBytes += size
		}
		l.reserved[digest].holders++
		holds[digest] = true
	}
	return nil
}

// settle adds the contents of a new version.
func (l *ledger) settle(contents map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.named == nil {
		return // the next use loads the contents
	}
	for digest, size := range contents {
		if _, ok := l.named[digest]; !ok && l.reserved[digest] != nil {
			l.reservedBytes -= l.reserved[digest].size
		}
		l.add(digest, size)
	}
}

// release releases the reservations of a capture, except those of unreferenced
// objects that the capture may have written.
func (l *ledger) release(holds, wrote map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unswept = l.unswept || len(wrote) > 0
	for digest := range holds {
		r := l.reserved[digest]
		_, named := l.named[digest]
		if r.holders--; r.holders > 0 || wrote[digest] && !named {
			continue
		}
		delete(l.reserved, digest)
		if !named && l.named != nil {
			l.reservedBytes -= r.size
		}
	}
	clear(holds)
}

// markTrimmed records that old versions were removed. Their contents need a
// sweep when the tenant has no space left, or when the ledger would no longer
// count them.
func (l *ledger) markTrimmed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimmed = true
}

// resetAfterSweep resets the ledger after a sweep, which may have removed contents, and has
// also covered the writes of other processes. No capture may be open.
func (l *ledger) resetAfterSweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.named, l.total, l.unswept, l.trimmed = nil, 0, false, false
	clear(l.reserved)
	l.reservedBytes = 0
}

// NeedsSweep reports whether commits of a tenant have left unreferenced
// objects. These objects count against the quota until a sweep removes them.
func (s *Store) NeedsSweep(tenant string) bool {
	l := s.ledger(tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unswept
}

// Stored returns the bytes that a tenant's versions use. Shared contents count
// once.
func (s *Store) Stored(ctx context.Context, tenant string) (int64, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return 0, err
	}
	defer release()
	l := s.ledger(tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	err = s.load(ctx, tenant, l)
	return l.total, err
}
