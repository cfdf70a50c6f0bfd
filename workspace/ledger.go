package workspace

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// ledger counts what a tenant's versions take: the bytes of every content and
// manifest that one of them names, each once. A commit reserves what it is about
// to add before it writes that, so that two at once cannot both have the last
// byte, and gives back what became of no version.
type ledger struct {
	mu       sync.Mutex       // guards the fields below; held while versions are read
	named    map[string]int64 // bytes by digest; nil when it is not known
	total    int64            // of named
	reserved map[string]*reservation
	ahead    int64 // of what is reserved and not named
}

// reservation is a content that commits which go on will name.
type reservation struct {
	size    int64
	holders int
}

// ledger is that of a tenant.
func (s *Store) ledger(tenant string) *ledger {
	l, _ := s.ledgers.LoadOrStore(tenant, &ledger{reserved: map[string]*reservation{}})
	return l.(*ledger)
}

// forget has what versions name be read again before it is needed.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.named, l.total = nil, 0
}

// load reads what versions name, if that is not known. The caller holds l.mu.
func (s *Store) load(ctx context.Context, tenant string, l *ledger) error {
	if l.named != nil {
		return nil
	}
	all, err := s.List(ctx, tenant)
	if err != nil {
		return err
	}
	l.named, l.total = map[string]int64{}, 0
	for _, w := range all {
		if err = s.loadVersions(ctx, tenant, w.ID, l); err != nil {
			l.named = nil
			return unavailable(err)
		}
	}
	l.ahead = 0
	for digest, r := range l.reserved {
		if _, ok := l.named[digest]; !ok {
			l.ahead += r.size
		}
	}
	return nil
}

func (s *Store) loadVersions(ctx context.Context, tenant, id string, l *ledger) error {
	numbers, err := s.numbers(ctx, tenant, id)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		r, err := s.version(ctx, tenant, id, n)
		if err != nil {
			return err
		}
		for _, digest := range r.manifests() {
			if _, ok := l.named[digest]; ok {
				continue
			}
			m, size, err := s.sizedManifest(ctx, tenant, digest)
			if err != nil && !broken(err) {
				return err // counted without it, the sum would be wrong until somebody sweeps
			}
			l.name(digest, size)
			if err != nil { // what it named is not known any more, but for how much that was
				l.name("damaged "+digest, r.Size)
			}
			for digest, size := range m.contents() {
				l.name(digest, size)
			}
		}
	}
	return nil
}

// name counts a content. The caller holds l.mu.
func (l *ledger) name(digest string, size int64) {
	if _, ok := l.named[digest]; !ok {
		l.named[digest] = size
		l.total += size
	}
}

// contents are the bytes of what a manifest names.
func (m manifest) contents() map[string]int64 {
	out := map[string]int64{}
	for _, e := range m {
		if e.Size > 0 {
			out[e.digest] = e.Size
		}
	}
	return out
}

// overQuota is what is said of a version that a quota has no room for.
func overQuota(quota int64) error {
	told := *brig.AsError(brig.OverQuota("workspaces", brig.FormatBytes(quota), time.Minute))
	return told.WithHint("no version was made, and those that there are stay; remove workspaces that are not needed, keep less in this one, or ask the operator for a larger quota.workspaces")
}

// reserve takes the room of contents for a capture, or refuses all of them.
// Nothing is refused, nor reserved, to whom no quota bounds.
func (c *Capture) reserve(ctx context.Context, contents map[string]int64) error {
	if c.quota <= 0 {
		return nil
	}
	l := c.s.ledger(c.tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := c.s.load(ctx, c.tenant, l); err != nil {
		return err
	}
	more := int64(0)
	for digest, size := range contents {
		if _, named := l.named[digest]; !named && l.reserved[digest] == nil {
			more += size
		}
	}
	if more > 0 && l.total+l.ahead+more > c.quota {
		return overQuota(c.quota)
	}
	for digest, size := range contents {
		if _, named := l.named[digest]; named || c.holds[digest] {
			continue
		}
		if l.reserved[digest] == nil {
			l.reserved[digest] = &reservation{size: size}
			l.ahead += size
		}
		l.reserved[digest].holders++
		c.holds[digest] = true
	}
	return nil
}

// settle counts what a version names that was just made.
func (l *ledger) settle(contents map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.named == nil {
		return // it is read when somebody needs it
	}
	for digest, size := range contents {
		if _, ok := l.named[digest]; !ok && l.reserved[digest] != nil {
			l.ahead -= l.reserved[digest].size
		}
		l.name(digest, size)
	}
}

// release gives back what a capture has reserved.
func (l *ledger) release(holds map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for digest := range holds {
		r := l.reserved[digest]
		if r.holders--; r.holders > 0 {
			continue
		}
		delete(l.reserved, digest)
		if _, ok := l.named[digest]; !ok && l.named != nil {
			l.ahead -= r.size
		}
	}
	clear(holds)
}

// Stored is how many bytes a tenant's versions take. What they have in common
// counts once.
func (s *Store) Stored(ctx context.Context, tenant string) (int64, error) {
	l := s.ledger(tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	err := s.load(ctx, tenant, l)
	return l.total, err
}
