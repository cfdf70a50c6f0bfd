// Package quota counts the usage of each tenant, and enforces its quota.
package quota

import (
	"fmt"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Account is the in-memory state of one tenant: its quota, its limits and its usage. Every
// admission decision is made in memory, under one lock. The counts are rebuilt from the stored
// records when a server starts. Only the usage is stored, every few seconds.
type Account struct {
	now func() time.Time

	mu           sync.Mutex // guards the fields below
	tenant       brig.Tenant
	limitRange   brig.LimitRange // limits of sandboxes, capped by the tenant's limits
	closed       bool            // the tenant is being removed
	sandboxes    int
	paused       int
	executions   int
	storage      int64
	reservations map[*Reservation]bool
	today        string
	spent        brig.UsageTotals              // usage of today
	unflushed    map[usageKey]brig.UsageTotals // usage since the last flush
	labels       map[usageKey]bool             // labels that have a usage line today
	buckets      map[Caller]*bucket            // rate limits of calls; the empty caller is the tenant without visitors
	endedCount   int                           // sandboxes that ended since CountEnded returned true
	trimming     bool                          // BeginTrim returned true, and EndTrim has not ended it
	trimAgain    bool                          // outcomes were added during the trim
}

// New returns the account of a tenant. limits are the limits of its sandboxes, and today holds the
// current day's usage lines.
func New(now func() time.Time, t brig.Tenant, limits brig.LimitRange, today []brig.UsageLine) *Account {
	a := &Account{
		now: now, tenant: t, limitRange: limits, reservations: map[*Reservation]bool{}, today: brig.DayOf(now()),
		unflushed: map[usageKey]brig.UsageTotals{}, labels: map[usageKey]bool{}, buckets: map[Caller]*bucket{},
	}
	for _, l := range today {
		if l.Label == "" {
			a.spent = l.UsageTotals
		} else {
			a.labels[usageKey{l.Day, l.Label, l.Value}] = true
		}
	}
	return a
}

// Reserve takes a reservation for one more sandbox, if the quota permits it.
func (a *Account) Reserve(spec brig.Spec) (*Reservation, error) {
	return a.ReserveResumed(spec, 0)
}

// ReserveResumed is like Reserve, for a paused sandbox that is being resumed.
// The bytes of its save do not count, because the save is removed once the
// sandbox runs.
func (a *Account) ReserveResumed(spec brig.Spec, bytes int64) (*Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	q := a.tenant.Quota
	switch {
	case a.closed:
		return nil, errRemoved(a.tenant.Name)
	case q.Sandboxes > 0 && a.sandboxes >= q.Sandboxes:
		return nil, brig.QuotaExceededError("sandboxes", fmt.Sprintf("%d at once", q.Sandboxes), time.Second)
	case q.Storage > 0 && a.storage-bytes+spec.Limits.Disk > q.Storage:
		return nil, brig.QuotaExceededError("storage", brig.FormatBytes(q.Storage), time.Second)
	}
	a.catchUp()
	if err := q.CheckReserved(a.spent, a.now()); err != nil {
		return nil, err
	}
	p := a.newReservation(spec)
	p.idle = true
	return p, nil
}

// ReserveExisting takes a reservation for a sandbox that already exists, regardless of the quota.
func (a *Account) ReserveExisting(spec brig.Spec) *Reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newReservation(spec)
}

// ReservePaused takes a reservation for a sandbox that is already paused. Only the disk space of
// the sandbox's save counts.
func (a *Account) ReservePaused(bytes int64) *Reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addPaused(bytes)
}

// addPaused adds a reservation for a paused sandbox. The caller holds a.mu.
func (a *Account) addPaused(bytes int64) *Reservation {
	a.paused++
	a.storage += bytes
	return a.add(&Reservation{disk: bytes, idle: true, isPaused: true})
}

// ReservePause takes a reservation for one more paused sandbox, if the quota permits
// it. The size of its save is not known yet.
func (a *Account) ReservePause() (*Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maxPaused := a.tenant.Quota.MaxPaused()
	switch {
	case a.closed:
		return nil, errRemoved(a.tenant.Name)
	case a.paused >= maxPaused:
		return nil, brig.QuotaExceededError("paused", fmt.Sprintf("%d paused sandboxes", maxPaused), time.Second)
	}
	return a.addPaused(0), nil
}

// AddStorage counts disk space until release is called.
func (a *Account) AddStorage(bytes int64) (release func()) {
	add := func(n int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.storage += n
	}
	add(bytes)
	return func() { add(-bytes) }
}

// newReservation creates a reservation. The caller holds a.mu.
func (a *Account) newReservation(spec brig.Spec) *Reservation {
	a.sandboxes++
	a.storage += spec.Limits.Disk
	return a.add(&Reservation{
		cpus: spec.Limits.CPUs, memoryGiB: float64(spec.Limits.Memory) / brig.GiB, disk: spec.Limits.Disk, labels: spec.Labels,
	})
}

func (a *Account) add(p *Reservation) *Reservation {
	p.a, p.since = a, a.now()
	a.reservations[p] = true
	return p
}

// ReserveExec takes a reservation for one more execution, and counts the execution as usage.
func (a *Account) ReserveExec(labels map[string]string) (*Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	q := a.tenant.Quota
	if a.closed {
		return nil, errRemoved(a.tenant.Name)
	}
	if q.Executions > 0 && a.executions >= q.Executions {
		return nil, brig.QuotaExceededError("executions", fmt.Sprintf("%d at once", q.Executions), time.Second)
	}
	a.catchUp()
	if err := q.CheckToday(a.spent, a.now()); err != nil {
		return nil, err
	}
	return a.newExec(labels, true), nil
}

// ReserveExecs is like ReserveExec, for the n executions of a save. Unless the save is copied, the
// executions already count as usage.
func (a *Account) ReserveExecs(labels map[string]string, n int, copied bool) (list []*Reservation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	q := a.tenant.Quota
	if a.closed {
		return nil, errRemoved(a.tenant.Name)
	}
	if q.Executions > 0 && a.executions+n > q.Executions {
		return nil, brig.QuotaExceededError("executions", fmt.Sprintf("%d at once", q.Executions), time.Second)
	}
	a.catchUp()
	if copied {
		if err := q.CheckToday(a.spent.Add(brig.UsageTotals{Executions: int64(n - 1)}), a.now()); err != nil {
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
func (a *Account) newExec(labels map[string]string, countUsage bool) *Reservation {
	a.executions++
	if countUsage {
		a.addUsage(labels, brig.UsageTotals{Executions: 1})
	}
	return a.add(&Reservation{isExec: true, labels: labels, idle: true, counted: countUsage})
}

// ResumeExec takes a reservation for an execution that an earlier server began and counted.
func (a *Account) ResumeExec(labels map[string]string) *Reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.executions++
	return a.add(&Reservation{isExec: true, labels: labels})
}

// CallLimits returns the limit range and the tenant's limits that apply to the tenant's calls.
func (a *Account) CallLimits() (brig.LimitRange, brig.Ceilings) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limitRange, a.tenant.Ceilings
}

// Change replaces the tenant's quota and limits.
func (a *Account) Change(t brig.Tenant, limitRange brig.LimitRange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tenant, a.limitRange = t, limitRange
	clear(a.buckets)
}

// Close closes the account, unless it still has sandboxes or executions. A
// closed account rejects new ones. Close reports whether it closed the account.
func (a *Account) Close() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = a.sandboxes == 0 && a.executions == 0
	return a.closed
}

// Reopen undoes Close.
func (a *Account) Reopen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = false
}

func errRemoved(tenant string) error {
	return brig.Errorf(brig.PermissionDenied, "the tenant %q is being removed", tenant)
}

// Tenant returns the current state of the tenant.
func (a *Account) Tenant() brig.Tenant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenant
}

// Quota returns the tenant's quota.
func (a *Account) Quota() brig.Quota {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenant.Quota
}

// CountEnded counts a sandbox that has ended, and reports whether the next trim
// of ended sandboxes is due.
func (a *Account) CountEnded(keep int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endedCount++; a.endedCount <= keep/4 {
		return false
	}
	a.endedCount = 0
	return true
}

// BeginTrim reports whether the caller must trim the tenant's outcomes. If a trim is in progress,
// its EndTrim will request one more.
func (a *Account) BeginTrim() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trimAgain = a.trimming
	begin := !a.trimming
	a.trimming = true
	return begin
}

// EndTrim ends a trim, and reports whether the caller must trim again.
func (a *Account) EndTrim() (trimAgain bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trimming, a.trimAgain = a.trimAgain, false
	return a.trimming
}

// CheckOpen returns an error if the tenant is being removed.
func (a *Account) CheckOpen() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errRemoved(a.tenant.Name)
	}
	return nil
}

// StorageUsed returns the disk space that counts against the quota, in bytes.
func (a *Account) StorageUsed() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.storage
}
