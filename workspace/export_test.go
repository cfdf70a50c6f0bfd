package workspace

import (
	"context"
	"math"
	"os"
	"time"
)

// DigestOf returns the digest of the tree that a manifest describes, even if
// the manifest is invalid.
func DigestOf(text string) string {
	m, _ := decodeManifest([]byte(text))
	if m == nil {
		return ""
	}
	return m.digest()
}

// PathsOf returns a manifest's paths in the order in which they are unpacked.
func PathsOf(b []byte) ([]string, error) {
	m, err := decodeManifest(b)
	return m.paths(), err
}

// SetMaxWorkspaces sets the maximum number of workspaces of a tenant, until the
// test ends.
func SetMaxWorkspaces(t interface{ Cleanup(func()) }, n int) {
	was := maxWorkspaces
	maxWorkspaces = n
	t.Cleanup(func() { maxWorkspaces = was })
}

// SetSweepPrecedence sets how long callers wait for a waiting sweep, until the
// test ends.
func SetSweepPrecedence(t interface{ Cleanup(func()) }, d time.Duration) {
	was := sweepPrecedence
	sweepPrecedence = d
	t.Cleanup(func() { sweepPrecedence = was })
}

// CountWaiting returns the number of callers that wait for an exclusive hold on a
// key.
func (d *Dir) CountWaiting(key string) int {
	v, ok := d.holds.all.Load(key)
	if !ok {
		return 0
	}
	l := v.(*holdLock)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// SetLockDelay sets the age after which a staged file without a lock is
// abandoned, until the test ends.
func SetLockDelay(t interface{ Cleanup(func()) }, d time.Duration) {
	was := lockDelay
	lockDelay = d
	t.Cleanup(func() { lockDelay = was })
}

// UseOutside adds n bytes to the size captured outside /workspace.
func (c *Capture) UseOutside(n int64) { c.outsideBytes += n }

// SetMemory sets the limits of the memory for manifests, for a tenant and for
// the server.
func (s *Store) SetMemory(tenant, all int64) { s.memory = newMemory(tenant, all) }

// Memory returns the memory currently held for manifests, and the peak value.
func (s *Store) Memory() (held, peak int64) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.held, s.memory.peak
}

// SetMaxMemoryWait sets how long a commit waits for more memory, until the test
// ends.
func SetMaxMemoryWait(t interface{ Cleanup(func()) }, d time.Duration) {
	was := maxMemoryWait
	maxMemoryWait = d
	t.Cleanup(func() { maxMemoryWait = was })
}

// SetMaxVersions sets the number of versions of a workspace to keep, and the
// number of excess versions that triggers a removal, until the test ends.
func SetMaxVersions(t interface{ Cleanup(func()) }, n, batch int) {
	was, had := maxVersions, trimBatch
	maxVersions, trimBatch = n, batch
	t.Cleanup(func() { maxVersions, trimBatch = was, had })
}

// SetStaged sets the maximum bytes that may be staged at the same time, for a tenant
// and for the server.
func (s *Store) SetStaged(tenant, all int64) {
	s.declared, s.staged = newMemory(tenant, math.MaxInt64), newMemory(tenant, all)
}

// SetQuota sets the maximum bytes of all versions.
func (c *Capture) SetQuota(n int64) { c.quota = n }

// TakeMemory reserves n bytes of the memory for manifests, and waits until
// they are available.
func (s *Store) TakeMemory(ctx context.Context, tenant string, n int64) (release func(), err error) {
	u := s.memory.use(tenant)
	return u.release, u.reserve(ctx, n)
}

// SetMaxOvertake sets how long others may overtake a waiting operation, until the
// test ends.
func SetMaxOvertake(t interface{ Cleanup(func()) }, d time.Duration) {
	was := maxOvertake
	maxOvertake = d
	t.Cleanup(func() { maxOvertake = was })
}

// SetSyncFile replaces the sync of a file, until the test ends.
func SetSyncFile(t interface{ Cleanup(func()) }, f func(*os.File) error) {
	was := syncFile
	syncFile = f
	t.Cleanup(func() { syncFile = was })
}
