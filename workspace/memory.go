package workspace

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Bounds of the memory for manifests, in bytes. A guest chooses the names in a
// manifest, and a viewer chooses how many are read at once.
const (
	tenantMemory = 384 << 20
	serverMemory = 768 << 20
	// decodedFactor is an upper bound of the memory of a decoded manifest, as a
	// multiple of its stored size.
	decodedFactor = 2
	// commitFactor is the same for a commit, which holds the base version, the
	// sandbox's files, and the encoded result.
	commitFactor = 6
	// entryMemory and nameFactor are the same for one entry of a commit: without
	// its names, and as a multiple of their bytes.
	entryMemory = 768
	nameFactor  = 3
	// memoryStep is the smallest amount by which a commit asks for more.
	memoryStep = 256 << 10
)

// Bounds of the staged bytes of the commits of a tenant and of the server. A
// commit stages one file at a time, of at most brig.MaxWorkspaceFile, and does
// not know before the end whether the store has its content already.
const (
	tenantStaged = 16 << 30
	serverStaged = 32 << 30
)

// maxMemoryWait is how long an operation that already holds memory waits for
// more. Two of them may wait for each other.
var maxMemoryWait = 30 * time.Second

// memory bounds the bytes that operations hold, for each tenant and for the
// server: of manifests in memory, or of staged files.
type memory struct {
	tenant, all int64 // bounds

	mu       sync.Mutex // guards the fields below
	byTenant map[string]int64
	held     int64
	peak     int64         // the most that was held
	changed  chan struct{} // closed and replaced when memory is released
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
	others, all := m.byTenant[u.tenant]-u.held, m.held-u.held
	return (others == 0 || others+u.held+n <= m.tenant) && (all == 0 || all+u.held+n <= m.all)
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

// reuse makes what the operation uses beyond n bytes available to it again.
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
	for !u.fits(n) {
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
	close(m.changed)
	m.changed = make(chan struct{})
}
