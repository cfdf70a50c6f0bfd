package quota

import (
	"time"

	"github.com/brig-run/brig"
)

// Reservation is the share of a tenant's quota that one sandbox or one execution
// occupies until it ends.
type Reservation struct {
	a         *Account
	isExec    bool
	cpus      float64
	memoryGiB float64
	disk      int64
	labels    map[string]string
	since     time.Time // the time up to which usage is counted
	counted   bool      // the execution counts as usage
	isPaused  bool      // the sandbox is paused, and does not count as a sandbox
	// idle is true while the sandbox or execution waits for an instance. An
	// idle reservation counts against the quota, but accrues no usage.
	idle bool
	// stop ends an execution early. It is nil until SetStopFunc sets it. stopReason is the reason
	// for the stop.
	stop       func(cause error)
	stopReason error
}

// Account returns the account that the reservation belongs to, or nil for a nil reservation.
func (p *Reservation) Account() *Account {
	if p == nil {
		return nil
	}
	return p.a
}

// AddDisk adds disk space to the reservation of a paused sandbox, if the quota permits
// it.
func (p *Reservation) AddDisk(bytes int64) error {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.tenant.Quota.Storage; q > 0 && a.storage+bytes > q {
		return brig.QuotaExceededError("storage", brig.FormatBytes(q), time.Second)
	}
	if a.reservations[p] {
		a.storage += bytes
		p.disk += bytes
	}
	return nil
}

// Start starts the time of the reservation's sandbox or execution. Further calls do nothing.
func (p *Reservation) Start() {
	if p == nil {
		return
	}
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.idle {
		p.idle, p.since = false, p.a.now()
	}
}

// SetStopFunc sets the function that ends an execution early. The reservation is
// nil if the execution is not counted.
func (p *Reservation) SetStopFunc(stop func(cause error)) {
	if p == nil {
		return
	}
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.stop = stop
}

// ClearStopFunc removes the function that ends an execution early, until the next
// SetStopFunc.
func (p *Reservation) ClearStopFunc() {
	if p == nil {
		return
	}
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.stop, p.stopReason = nil, nil
}

// ResultError returns the error of an execution: the quota error if the engine
// ended the execution for that reason, and err otherwise.
func (p *Reservation) ResultError(err error) error {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.stopReason != nil {
		return p.stopReason
	}
	return err
}

// Release releases a reservation. Further calls do nothing.
func (p *Reservation) Release() { p.close(false) }

// Cancel releases the reservation of an execution that did not begin, and subtracts the execution
// from the usage.
func (p *Reservation) Cancel() { p.close(true) }

func (p *Reservation) close(undone bool) {
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
		a.addUsage(p.labels, brig.UsageTotals{Executions: -1})
	default:
		a.executions--
	}
}

// ChargeEgress counts bytes that a sandbox has exchanged with the outside. An error of
// kind RateLimited means that its tenant has used up today's quota.
func (p *Reservation) ChargeEgress(bytes int64) error {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	a.addUsage(p.labels, brig.UsageTotals{Egress: bytes})
	if q := a.tenant.Quota; q.EgressPerDay > 0 && a.spent.Egress > q.EgressPerDay {
		return brig.QuotaExceededError("egress_bytes_per_day", brig.FormatBytes(q.EgressPerDay), brig.UntilTomorrow(a.now()))
	}
	return nil
}
