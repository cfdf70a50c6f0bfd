package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// account is the in-memory state of one tenant: its quota, its limits and its
// usage. Every admission decision is made in memory, under one lock. The counts
// are rebuilt from the stored records when a server starts. Only the usage is
// written to the store, every few seconds (usage.go).
type account struct {
	now func() time.Time
	// records and workspaces serialize changes of the tenant's stored records
	// (ctx_mutex.go). They are acquired before mu.
	records, workspaces ctxMutex

	mu           sync.Mutex // guards the fields below
	tenant       brig.Tenant
	limitRange   brig.Bounds // limits of sandboxes, capped by the tenant's limits
	closed       bool        // the tenant is being removed
	sandboxes    int
	paused       int
	executions   int
	storage      int64
	reservations map[*reservation]bool
	today        string
	spent        brig.Spent              // usage of today
	unflushed    map[usageKey]brig.Spent // usage since the last flush
	labels       map[usageKey]bool       // labels that have a usage line today
	buckets      map[caller]*bucket      // rate limits of calls; the empty caller is the tenant without visitors
	endedCount   int                     // sandboxes that ended since the last trim (keep.go)
}

// usageKey identifies a line of a tenant's usage.
type usageKey struct{ day, label, value string }

// maxUsageLabels is the maximum number of labels by which one tenant's usage is
// broken down on one day. Callers choose labels, and must not be able to fill
// the disk with them. The totals include the usage of all labels.
const maxUsageLabels = 1000

// reservation is the share of a tenant's quota that one sandbox or one execution
// occupies until it ends.
type reservation struct {
	a         *account
	isExec    bool
	cpus      float64
	memoryGiB float64
	disk      int64
	labels    map[string]string
	since     time.Time // the time up to which usage is counted
	counted   bool      // the execution counts as usage
	isPaused  bool      // the sandbox is paused, and does not count as a sandbox
	// idle is true while the sandbox or execution has not begun, because it
	// waits for an instance. An idle reservation counts against the quota, but
	// accrues no usage.
	idle bool
	// stop ends an execution early. It is nil until setStop sets it. stopReason
	// is the reason for which the execution was stopped.
	stop       func(why error)
	stopReason error
}

// account returns the account of an existing tenant.
func (g *gate) account(ctx context.Context, tenant string) (*account, error) {
	if a, ok := g.accounts.Load(tenant); ok {
		return a.(*account), nil
	}
	g.tenantMu.Lock()
	defer g.tenantMu.Unlock()
	return g.loadAccount(ctx, tenant)
}

// loadAccount reads a tenant's record and today's usage from the store, unless
// the account is already loaded. The caller holds tenantMu.
func (g *gate) loadAccount(ctx context.Context, tenant string) (*account, error) {
	if a, ok := g.accounts.Load(tenant); ok {
		return a.(*account), nil
	}
	t, err := g.Store.GetTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	today := brig.DayOf(g.Now())
	lines, err := g.Store.Usage(ctx, tenant, today, today)
	if err != nil {
		return nil, err
	}
	a := &account{
		now: g.Now, records: newCtxMutex(), workspaces: newCtxMutex(), tenant: *t, limitRange: g.LimitRange.Within(t.Ceilings), reservations: map[*reservation]bool{}, today: today,
		unflushed: map[usageKey]brig.Spent{}, labels: map[usageKey]bool{}, buckets: map[caller]*bucket{},
	}
	for _, l := range lines {
		if l.Label == "" {
			a.spent = l.Spent
		} else {
			a.labels[usageKey{l.Day, l.Label, l.Value}] = true
		}
	}
	g.accounts.Store(tenant, a)
	return a, nil
}

// reserve takes a reservation for one more sandbox, if the quota permits it.
func (a *account) reserve(spec brig.Spec) (*reservation, error) {
	return a.reserveResumed(spec, 0)
}

// reserveResumed is like reserve, for a paused sandbox that is being resumed.
// The bytes of its save do not count, because the save is removed once the
// sandbox runs.
func (a *account) reserveResumed(spec brig.Spec, bytes int64) (*reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	q := a.tenant.Quota
	switch {
	case a.closed:
		return nil, errRemoved(a.tenant.Name)
	case q.Sandboxes > 0 && a.sandboxes >= q.Sandboxes:
		return nil, brig.OverQuota("sandboxes", fmt.Sprintf("%d at once", q.Sandboxes), time.Second)
	case q.Storage > 0 && a.storage-bytes+spec.Limits.Disk > q.Storage:
		return nil, brig.OverQuota("storage", brig.FormatBytes(q.Storage), time.Second)
	}
	a.catchUp()
	if err := q.FitsReserved(a.spent, a.now()); err != nil {
		return nil, err
	}
	p := a.newReservation(spec)
	p.idle = true
	return p, nil
}

// reserveExisting takes a reservation for a sandbox that already exists, regardless of the quota.
func (a *account) reserveExisting(spec brig.Spec) *reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newReservation(spec)
}

// reservePaused takes a reservation for a sandbox that is paused already. Only the
// disk space of the sandbox's save counts.
func (a *account) reservePaused(bytes int64) *reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addPaused(bytes)
}

// addPaused adds a reservation for a paused sandbox. The caller holds a.mu.
func (a *account) addPaused(bytes int64) *reservation {
	a.paused++
	a.storage += bytes
	return a.add(&reservation{disk: bytes, idle: true, isPaused: true})
}

// reservePause takes a reservation for one more paused sandbox, if the quota permits
// it. The size of its save is not known yet.
func (a *account) reservePause() (*reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := a.tenant.Quota.PausedBound()
	switch {
	case a.closed:
		return nil, errRemoved(a.tenant.Name)
	case a.paused >= most:
		return nil, brig.OverQuota("paused", fmt.Sprintf("%d paused sandboxes", most), time.Second)
	}
	return a.addPaused(0), nil
}

// addDisk adds disk space to the reservation of a paused sandbox, if the quota permits
// it.
func (p *reservation) addDisk(bytes int64) error {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.tenant.Quota.Storage; q > 0 && a.storage+bytes > q {
		return brig.OverQuota("storage", brig.FormatBytes(q), time.Second)
	}
	if a.reservations[p] {
		a.storage += bytes
		p.disk += bytes
	}
	return nil
}

// addStorage counts disk space until release is called.
func (a *account) addStorage(bytes int64) (release func()) {
	add := func(n int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.storage += n
	}
	add(bytes)
	return func() { add(-bytes) }
}

// newReservation creates a reservation. The caller holds a.mu.
func (a *account) newReservation(spec brig.Spec) *reservation {
	a.sandboxes++
	a.storage += spec.Limits.Disk
	return a.add(&reservation{
		cpus: spec.Limits.CPUs, memoryGiB: float64(spec.Limits.Memory) / brig.GiB, disk: spec.Limits.Disk, labels: spec.Labels,
	})
}

func (a *account) add(p *reservation) *reservation {
	p.a, p.since = a, a.now()
	a.reservations[p] = true
	return p
}

// reserveExec takes a reservation for one more execution, and counts the execution as usage.
func (a *account) reserveExec(labels map[string]string) (*reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	q := a.tenant.Quota
	if a.closed {
		return nil, errRemoved(a.tenant.Name)
	}
	if q.Executions > 0 && a.executions >= q.Executions {
		return nil, brig.OverQuota("executions", fmt.Sprintf("%d at once", q.Executions), time.Second)
	}
	a.catchUp()
	if err := q.FitsToday(a.spent, a.now()); err != nil {
		return nil, err
	}
	return a.newExec(labels, true), nil
}

// reserveExecs is like reserveExec, for the n executions of a save. If it is not a
// copy, they count as usage already.
func (a *account) reserveExecs(labels map[string]string, n int, copied bool) (list []*reservation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	q := a.tenant.Quota
	if a.closed {
		return nil, errRemoved(a.tenant.Name)
	}
	if q.Executions > 0 && a.executions+n > q.Executions {
		return nil, brig.OverQuota("executions", fmt.Sprintf("%d at once", q.Executions), time.Second)
	}
	a.catchUp()
	if copied {
		if err := q.FitsToday(a.spent.Add(brig.Spent{Executions: int64(n - 1)}), a.now()); err != nil {
			return nil, err
		}
	}
	for range n {
		list = append(list, a.newExec(labels, copied))
	}
	return list, nil
}

// newExec creates the reservation of an execution that has not begun. The caller holds
// a.mu.
func (a *account) newExec(labels map[string]string, countUsage bool) *reservation {
	a.executions++
	if countUsage {
		a.addUsage(labels, brig.Spent{Executions: 1})
	}
	return a.add(&reservation{isExec: true, labels: labels, idle: true, counted: countUsage})
}

// start marks the sandbox or execution of a reservation as begun: its time counts
// from now on. Further calls do nothing.
func (p *reservation) start() {
	if p == nil {
		return
	}
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.idle {
		p.idle, p.since = false, p.a.now()
	}
}

// resumeExec takes a reservation for an execution that an earlier server began and counted.
func (a *account) resumeExec(labels map[string]string) *reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.executions++
	return a.add(&reservation{isExec: true, labels: labels})
}

// release releases a reservation. Further calls do nothing.
func (p *reservation) release() { p.close(false) }

// cancel releases the reservation of an execution that never began, and
// subtracts the execution from the usage.
func (p *reservation) cancel() { p.close(true) }

func (p *reservation) close(undone bool) {
	if p == nil {
		return
	}
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reservations[p] {
		return
	}
	delete(a.reservations, p)
	a.resetDaily()
	a.accrue(p, a.now())
	switch {
	case p.isPaused:
		a.paused--
		a.storage -= p.disk
	case !p.isExec:
		a.sandboxes--
		a.storage -= p.disk
	case undone && p.counted:
		a.executions--
		a.addUsage(p.labels, brig.Spent{Executions: -1})
	default:
		a.executions--
	}
}

// charge adds the cost of an execution to the usage.
func (a *account) charge(labels map[string]string, cost float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	a.addUsage(labels, brig.Spent{Cost: cost})
}

// account returns the account that the reservation belongs to, or nil for a nil reservation.
func (p *reservation) account() *account {
	if p == nil {
		return nil
	}
	return p.a
}

// accrue adds the usage of a reservation since the last call of accrue. The caller
// holds a.mu.
func (a *account) accrue(p *reservation, now time.Time) {
	d := now.Sub(p.since)
	if p.since = now; d <= 0 || p.idle {
		return // the clock was set back, or the reservation is idle
	}
	if p.isExec {
		a.addUsage(p.labels, brig.Spent{ExecutionTime: d})
		return
	}
	a.addUsage(p.labels, brig.Spent{CPUTime: time.Duration(p.cpus * float64(d)), Memory: p.memoryGiB * d.Seconds()})
}

// addUsage adds s to the total and to the lines of the labels. The caller holds
// a.mu.
func (a *account) addUsage(labels map[string]string, s brig.Spent) {
	a.spent = a.spent.Add(s)
	sum := usageKey{day: a.today}
	a.unflushed[sum] = a.unflushed[sum].Add(s)
	for k, v := range labels {
		line := usageKey{a.today, k, v}
		if !a.labels[line] {
			if len(a.labels) >= maxUsageLabels {
				continue
			}
			a.labels[line] = true
		}
		a.unflushed[line] = a.unflushed[line].Add(s)
	}
}

// catchUp updates the usage of all open reservations, if a quota depends on it.
// The caller holds a.mu.
func (a *account) catchUp() {
	if !a.tenant.Quota.OfTime() {
		return
	}
	now := a.now()
	for p := range a.reservations {
		a.accrue(p, now)
	}
}

// resetDaily resets the day's usage when a new day has begun. The caller holds a.mu.
func (a *account) resetDaily() {
	if day := brig.DayOf(a.now()); day != a.today {
		a.today, a.spent = day, brig.Spent{}
		clear(a.labels)
	}
}

// flush returns the usage that has not been written yet, and clears it.
func (a *account) flush() (lines []brig.UsageLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.resetDaily()
	for p := range a.reservations {
		a.accrue(p, now)
	}
	for k, s := range a.unflushed {
		if s != (brig.Spent{}) {
			lines = append(lines, brig.UsageLine{Tenant: a.tenant.Name, Day: k.day, Label: k.label, Value: k.value, Spent: s})
		}
	}
	clear(a.unflushed)
	return lines
}

// restore adds back the lines that flush returned and that could not be
// written.
func (a *account) restore(lines []brig.UsageLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range lines {
		k := usageKey{l.Day, l.Label, l.Value}
		a.unflushed[k] = a.unflushed[k].Add(l.Spent)
	}
}

// callLimits returns the limit range and the tenant's limits that apply to the tenant's calls.
func (a *account) callLimits() (brig.Bounds, brig.Ceilings) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limitRange, a.tenant.Ceilings
}

// workspaceQuota returns the maximum number of bytes of the tenant's workspace
// versions, 0 for no limit.
func (a *account) workspaceQuota() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenant.Quota.Workspaces
}

// change replaces the tenant's quota and limits.
func (a *account) change(t brig.Tenant, limitRange brig.Bounds) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tenant, a.limitRange = t, limitRange
	clear(a.buckets)
}

// close closes the account, unless it still has sandboxes or executions. A
// closed account rejects new ones. close reports whether it closed the account.
func (a *account) close() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = a.sandboxes == 0 && a.executions == 0
	return a.closed
}

func (a *account) reopen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = false
}

func errRemoved(tenant string) error {
	return brig.Errorf(brig.PermissionDenied, "the tenant %q is being removed", tenant)
}

// track records the reservation of a sandbox that has an instance.
func (g *gate) track(id brig.ID, p *reservation) {
	g.sandboxes.update(id, func(s *sandbox) { s.reservation = p })
}

// trackExisting takes a reservation for a sandbox that an earlier server
// created, and records it.
func (g *gate) trackExisting(ctx context.Context, r *brig.Record) error {
	a, err := g.account(ctx, r.Tenant)
	if err != nil {
		return err
	}
	spec := r.Spec
	spec.Labels = maps.Clone(spec.Labels)
	g.track(r.ID, a.reserveExisting(spec))
	return nil
}
