package workspace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Limits of the memory for manifests, in bytes. They are necessary because
// guests control the names in manifests, and viewers control how many
// manifests are read at the same time.
const (
	tenantMemory = 384 << 20
	serverMemory = 768 << 20
	// decodedFactor and decodedEntry determine an upper bound of the memory of a
	// decoded manifest. decodedFactor is a multiple of the stored size for long
	// entries, and decodedEntry is the memory of one entry without its names. minLine
	// is the minimum size of a stored entry.
	decodedFactor = 2
	decodedEntry  = 256
	minLine       = 40
	// commitFactor estimates the memory for the sandbox's files during a commit, as
	// a multiple of the stored size of the base version.
	commitFactor = 4
	// entryMemory estimates the memory of one entry of a commit without its
	// names, and nameFactor that of the names as a multiple of their length.
	entryMemory = 768
	nameFactor  = 3
	// memoryStep is the minimum amount of additional memory that a commit
	// reserves.
	memoryStep = 256 << 10
)

// Limits of the staged bytes of all commits of a tenant and of the server. A
// commit stages one file at a time, of at most brig.MaxWorkspaceFile, even if the
// store already has the content, because the digest is not known until the end.
// The commit reserves the file's declared size from the tenant's limit, so that
// two commits of a tenant do not wait for each other. From the server's limit it
// reserves only the bytes that it has received.
const (
	tenantStaged = 16 << 30
	serverStaged = 32 << 30
)

// Two tenants must not be able to use all of the server's bytes. A tenant that
// would exceed 1/smallPart of them must leave 1/reservedPart to tenants below that
// threshold.
const (
	smallPart    = 8
	reservedPart = 4
)

// decodedMemory returns the memory for a decoded manifest of a stored size.
func decodedMemory(size int64) int64 {
	return max(decodedFactor*size, size+decodedEntry*min(size/minLine, brig.MaxWorkspaceFiles))
}

// maxMemoryWait is the maximum wait of an operation that already holds memory.
// The wait must end, because two such operations may wait for each other.
var maxMemoryWait = 30 * time.Second

// maxOvertake is the maximum time for which later operations may overtake a
// waiting operation.
var maxOvertake = 10 * time.Second

// memory limits the bytes that operations hold, for each tenant and for the
// server. The bytes belong either to manifests in memory or to staged files.
type memory struct {
	tenant, all int64 // limits

	mu       sync.Mutex // guards the fields below
	byTenant map[string]int64
	held     int64
	peak     int64           // maximum of the bytes held so far
	waiters  []*memoryWaiter // in the order of their arrival
	changed  chan struct{}   // closed and replaced when memory is released
}

// memoryWaiter is an operation that waits for n more bytes.
type memoryWaiter struct {
	u     *memoryUse
	n     int64
	since time.Time
}

func newMemory(tenant, all int64) *memory {
	return &memory{tenant: tenant, all: all, byTenant: map[string]int64{}, changed: make(chan struct{})}
}

// memoryUse tracks the bytes that one operation holds. It is not safe for
// concurrent use.
type memoryUse struct {
	m      *memory
	tenant string
	held   int64
	unused int64 // part of held that the operation has reserved but does not use
}

// use begins an operation of a tenant.
func (m *memory) use(tenant string) *memoryUse { return &memoryUse{m: m, tenant: tenant} }

// canHold reports whether an operation may hold n more bytes. An operation that
// exceeds a limit by itself is admitted if no other operation holds bytes
// under that limit. The caller holds m.mu.
func (u *memoryUse) canHold(n int64) bool {
	m := u.m
	all := m.all
	if m.byTenant[u.tenant]+n > m.all/smallPart {
		all -= m.all / reservedPart
	}
	return u.canTenantHold(n) && (m.held == u.held || m.held+n <= all)
}

// canTenantHold is like canHold, for the tenant's limit only.
func (u *memoryUse) canTenantHold(n int64) bool {
	tenantHeld := u.m.byTenant[u.tenant]
	return tenantHeld == u.held || tenantHeld+n <= u.m.tenant
}

// mustYield reports whether the operation of w must let an earlier operation go first
// that has waited for at least maxOvertake. An operation that holds memory does
// not yield, because that would delay the release of its memory. No operation
// yields to a tenant that has exhausted its own limit. The caller holds m.mu.
func (u *memoryUse) mustYield(w *memoryWaiter) bool {
	if u.held > 0 {
		return false
	}
	for _, e := range u.m.waiters {
		if e == w {
			return false
		}
		if time.Since(e.since) >= maxOvertake && (e.u.tenant == u.tenant || e.u.canTenantHold(e.n)) {
			return true
		}
	}
	return false
}

// grow uses n more bytes. It uses reserved bytes first, and may wait for the
// others.
func (u *memoryUse) grow(ctx context.Context, n int64) error {
	if n <= u.unused {
		u.unused -= n
		return nil
	}
	n -= u.unused
	u.unused = 0
	return u.wait(ctx, n)
}

// used returns the bytes that the operation uses.
func (u *memoryUse) used() int64 { return u.held - u.unused }

// reuse makes all held bytes except n available to the operation again.
func (u *memoryUse) reuse(n int64) { u.unused = u.held - n }

// reserve reserves n bytes for later use by the operation, and waits until
// they are available.
func (u *memoryUse) reserve(ctx context.Context, n int64) error {
	err := u.wait(ctx, n)
	if err == nil {
		u.unused += n
	}
	return err
}

// wait waits until the operation may hold n more bytes. An operation that holds
// nothing waits until ctx ends.
func (u *memoryUse) wait(ctx context.Context, n int64) error {
	m := u.m
	m.mu.Lock()
	defer m.mu.Unlock()
	var deadline <-chan time.Time
	var w *memoryWaiter
	for u.mustYield(w) || !u.canHold(n) {
		if w == nil {
			w = &memoryWaiter{u, n, time.Now()}
			m.waiters = append(m.waiters, w)
			defer m.leave(w)
		}
		if deadline == nil && u.held > 0 {
			timer := time.NewTimer(maxMemoryWait)
			defer timer.Stop()
			deadline = timer.C
		}
		changed := m.changed
		m.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-deadline:
			err = brig.Errorf(brig.Unavailable, "too many large workspaces are in use at once").
				WithHint("try again, or keep fewer files or shorter names in a workspace")
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		m.mu.Lock()
		if err != nil {
			return err
		}
	}
	u.held += n
	m.byTenant[u.tenant] += n
	m.held += n
	m.peak = max(m.peak, m.held)
	return nil
}

// release ends the operation.
func (u *memoryUse) release() {
	m := u.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= u.held
	if m.byTenant[u.tenant] -= u.held; m.byTenant[u.tenant] == 0 {
		delete(m.byTenant, u.tenant)
	}
	u.held, u.unused = 0, 0
	m.wake()
}

// wake wakes all operations that wait. The caller holds m.mu.
func (m *memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// leave ends the wait of an operation. The caller holds m.mu.
func (m *memory) leave(w *memoryWaiter) {
	m.waiters = slices.DeleteFunc(m.waiters, func(e *memoryWaiter) bool { return e == w })
	if time.Since(w.since) >= maxOvertake {
		m.wake() // other operations may have yielded to w
	}
}
