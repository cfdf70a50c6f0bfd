package workspace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Bounds of the memory for manifests, in bytes. A guest chooses the names in a
// manifest, and a viewer chooses how many are read at the same time.
const (
	tenantMemory = 384 << 20
	serverMemory = 768 << 20
	// decodedFactor and decodedEntry give upper bounds of the memory of a decoded
	// manifest: a multiple of its stored size if its entries are long, and the memory
	// of one entry without its names. minLine is the least size of a stored entry.
	decodedFactor = 2
	decodedEntry  = 256
	minLine       = 40
	// commitFactor is an estimate for the sandbox's files of a commit, as a multiple
	// of the stored size of its base version.
	commitFactor = 4
	// entryMemory and nameFactor are the same for one entry of a commit: without
	// its names, and as a multiple of their bytes.
	entryMemory = 768
	nameFactor  = 3
	// memoryStep is the smallest amount by which a commit asks for more.
	memoryStep = 256 << 10
)

// Bounds of the staged bytes of the commits of a tenant and of the server. A
// commit stages one file at a time, of at most brig.MaxWorkspaceFile, and does
// not know before the end whether the store has its content already. It reserves
// the declared size of the tenant's bytes, so that two commits of a tenant do not
// wait for each other, and of the server's bytes only what it has received.
const (
	tenantStaged = 16 << 30
	serverStaged = 32 << 30
)

// Two tenants must not take all of a server's bytes: one that would have more than
// 1/smallPart of them leaves 1/reservedPart to tenants with less.
const (
	smallPart    = 8
	reservedPart = 4
)

// decodedMemory returns the memory for a decoded manifest of a stored size.
func decodedMemory(size int64) int64 {
	return max(decodedFactor*size, size+decodedEntry*min(size/minLine, brig.MaxWorkspaceFiles))
}

// maxMemoryWait is how long an operation that already holds memory waits for
// more. Two of them may wait for each other.
var maxMemoryWait = 30 * time.Second

// maxOvertake is how long later operations, which may need less, go before an
// operation that waits.
var maxOvertake = 10 * time.Second

// memory bounds the bytes that operations hold, for each tenant and for the
// server: of manifests in memory, or of staged files.
type memory struct {
	tenant, all int64 // bounds

	mu       sync.Mutex // guards the fields below
	byTenant map[string]int64
	held     int64
	peak     int64           // the most that was held
	waiters  []*memoryWaiter // in the order of their arrival
	changed  chan struct{}   // closed and replaced when memory is released
}

// memoryWaiter is an operation that waits for n bytes more.
type memoryWaiter struct {
	u     *memoryUse
	n     int64
	since time.Time
}

func newMemory(tenant, all int64) *memory {
	return &memory{tenant: tenant, all: all, byTenant: map[string]int64{}, changed: make(chan struct{})}
}

// memoryUse is what one operation holds. One goroutine uses it.
type memoryUse struct {
	m      *memory
	tenant string
	held   int64
	unused int64 // bytes of held that the operation has reserved and not used
}

// use begins an operation of a tenant.
func (m *memory) use(tenant string) *memoryUse { return &memoryUse{m: m, tenant: tenant} }

// fits reports whether an operation may have n bytes more. What exceeds a bound
// by itself is admitted alone. The caller holds m.mu.
func (u *memoryUse) fits(n int64) bool {
	m := u.m
	all := m.all
	if m.byTenant[u.tenant]+n > m.all/smallPart {
		all -= m.all / reservedPart
	}
	return u.fitsTenant(n) && (m.held == u.held || m.held+n <= all)
}

// fitsTenant is fits for the bound of the tenant.
func (u *memoryUse) fitsTenant(n int64) bool {
	its := u.m.byTenant[u.tenant]
	return its == u.held || its+n <= u.m.tenant
}

// yields reports whether an operation lets an earlier one go first that has waited
// for long. An operation that holds memory does not: it would release that later.
// Others do not wait for a tenant that has used up its own bytes. The caller holds
// m.mu.
func (u *memoryUse) yields(w *memoryWaiter) bool {
	if u.held > 0 {
		return false
	}
	for _, e := range u.m.waiters {
		if e == w {
			return false
		}
		if time.Since(e.since) >= maxOvertake && (e.u.tenant == u.tenant || e.u.fitsTenant(e.n)) {
			return true
		}
	}
	return false
}

// grow uses n bytes more: reserved ones, or else others, for which it may wait.
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

// reuse makes all but n bytes of the used memory available to the operation
// again.
func (u *memoryUse) reuse(n int64) { u.unused = u.held - n }

// reserve waits for n bytes that the operation is going to use.
func (u *memoryUse) reserve(ctx context.Context, n int64) error {
	err := u.wait(ctx, n)
	if err == nil {
		u.unused += n
	}
	return err
}

// wait waits until the operation may hold n bytes more. An operation that holds
// nothing waits until ctx ends.
func (u *memoryUse) wait(ctx context.Context, n int64) error {
	m := u.m
	m.mu.Lock()
	defer m.mu.Unlock()
	var deadline <-chan time.Time
	var w *memoryWaiter
	for u.yields(w) || !u.fits(n) {
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
		m.wake() // others may have let it go first
	}
}
