package httpapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// Defaults of Limits.
const (
	DefaultBodies       = 512 << 20
	DefaultTenantBodies = 128 << 20
	DefaultOpen         = 1000
	DefaultTenantOpen   = 2000
)

// Limits bound the server memory and the concurrency of all requests. A zero
// field means its default.
type Limits struct {
	// Bodies limits the bytes of bodies in memory, and TenantBodies limits
	// those of one tenant. Streamed bodies do not count.
	Bodies, TenantBodies int64
	// Open limits the concurrent requests of one key, including streams and
	// connections, and TenantOpen limits those of one tenant.
	Open, TenantOpen int
	// Unread is how long a client may leave sent data unread.
	Unread time.Duration
}

// Limiter wraps all APIs of a server and accounts for the resources of their
// requests.
type Limiter struct {
	limits    Limits
	shedding  atomic.Bool  // whether new work is rejected
	shedCount atomic.Int64 // number of rejected requests
	// memory is the server's memory limit, used is the last measured usage, and
	// since is the number of bytes that bodies have reserved after that
	// measurement. All are zero until Watch is called.
	memory, used, since atomic.Int64

	mu      sync.Mutex // guards the fields below
	held    int64
	tenants map[string]int64
	open    map[string]int    // open requests by tenant and by key
	turns   map[string]*turns // by key
}

// NewLimiter returns a Limiter with the limits l.
func NewLimiter(l Limits) *Limiter {
	if l.Bodies == 0 {
		l.Bodies = DefaultBodies
	}
	if l.TenantBodies == 0 {
		l.TenantBodies = min(DefaultTenantBodies, l.Bodies)
	}
	if l.Open == 0 {
		l.Open = DefaultOpen
	}
	if l.TenantOpen == 0 {
		l.TenantOpen = max(DefaultTenantOpen, l.Open)
	}
	if l.Unread == 0 {
		l.Unread = DefaultUnread
	}
	return &Limiter{limits: l, tenants: map[string]int64{}, open: map[string]int{}, turns: map[string]*turns{}}
}

// Handler returns next with the limits of f applied to each request.
func (f *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := &Lease{limiter: f, work: isWork(r)}
		defer l.ReleaseAll()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), leaseKey{}, l)))
	})
}

type leaseKey struct{}

// Lease is the share of one request in the budgets of its server and its
// tenant. It is released when the request has been answered.
type Lease struct {
	limiter *Limiter
	tenant  string // guarded by limiter.mu, like held
	held    int64
	work    bool
	keys    []string // keys of limiter.open that count this request
}

// Begin counts a request of the actor a. It returns RateLimited if the key or
// the tenant has too many open requests, and Unavailable while the server
// rejects new work.
func (l *Lease) Begin(a brig.Actor) error {
	if l == nil || len(l.keys) > 0 {
		return nil
	}
	if l.work && l.limiter.shedding.Load() {
		return l.limiter.rejectOverloaded()
	}
	f := l.limiter
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range []struct {
		of    string
		limit int
		what  string
	}{{"tenant " + a.Tenant, f.limits.TenantOpen, "tenant"}, {"key " + a.Tenant + " " + a.Holder(), f.limits.Open, "key"}} {
		if f.open[b.of] >= b.limit {
			l.finish()
			e := brig.Errorf(brig.RateLimited, "%d requests of this %s are open, which is the limit", b.limit, b.what).
				WithHint("wait until one ends, or close an unused stream")
			e.RetryAfter = retryBudget
			return e
		}
		f.open[b.of]++
		l.keys = append(l.keys, b.of)
	}
	return nil
}

// finish undoes Begin. The caller holds limiter.mu.
func (l *Lease) finish() {
	for _, of := range l.keys {
		if l.limiter.open[of]--; l.limiter.open[of] == 0 {
			delete(l.limiter.open, of)
		}
	}
	l.keys = nil
}

// LeaseOf returns the lease of the request of ctx, or nil if the request did
// not pass a Limiter. A nil lease has no limits.
func LeaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// Reserve counts n more bytes of a tenant's body. It returns RateLimited if the
// tenant's budget is exhausted, and Unavailable if the server's budget is
// exhausted.
func (l *Lease) Reserve(tenant string, n int64) error {
	if l == nil {
		return nil
	}
	f := l.limiter
	if n > shedShare && f.isShort(n) {
		return f.rejectOverloaded()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.held == 0 {
		l.tenant = tenant
	}
	if held := f.tenants[l.tenant]; held+n > f.limits.TenantBodies {
		e := brig.Errorf(brig.RateLimited, "the open requests of this tenant already have %s", brig.FormatBytes(held)).
			WithHint("send fewer large requests at a time; the limit of the tenant is %s", brig.FormatBytes(f.limits.TenantBodies))
		e.RetryAfter = retryBudget
		return e
	}
	if f.held+n > f.limits.Bodies {
		e := brig.Errorf(brig.Unavailable, "the open requests have reached the server's limit").WithHint("try again in a moment")
		e.RetryAfter = retryBudget
		return e
	}
	f.held, l.held = f.held+n, l.held+n
	f.tenants[l.tenant] += n
	return nil
}

// shedShare is the number of bytes that may be reserved even when memory is
// short. The bodies of requests that stop or remove an object are smaller.
const shedShare = 16 << 10

// retryBudget is the Retry-After value for a request that exceeds a budget.
const retryBudget = 2 * time.Second

// Release releases n bytes of l.
func (l *Lease) Release(n int64) {
	if l == nil || n == 0 {
		return
	}
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	l.releaseLocked(n)
}

// releaseLocked is like Release. The caller holds limiter.mu.
func (l *Lease) releaseLocked(n int64) {
	f := l.limiter
	f.held, l.held = f.held-n, l.held-n
	if f.tenants[l.tenant] -= n; f.tenants[l.tenant] == 0 {
		delete(f.tenants, l.tenant)
	}
}

// ReleaseAll releases all bytes of l and undoes Begin.
func (l *Lease) ReleaseAll() {
	if l == nil {
		return
	}
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	if l.held > 0 {
		l.releaseLocked(l.held)
	}
	l.finish()
}

// InUse returns the bytes of bodies in memory.
func (f *Limiter) InUse() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}
