package quota

import (
	"time"

	"github.com/brig-run/brig"
)

// usageKey identifies a line of a tenant's usage.
type usageKey struct{ day, label, value string }

// maxUsageLabels is the maximum number of labels by which one tenant's usage is broken down on one
// day. The limit prevents callers, who choose the labels, from filling the disk. The totals include
// the usage of all labels.
const maxUsageLabels = 1000

// Charge adds the cost of an execution to the usage.
func (a *Account) Charge(labels map[string]string, cost float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetDaily()
	a.addUsage(labels, brig.UsageTotals{Cost: cost})
}

// accrue adds the usage of a reservation since the last call of accrue. The caller
// holds a.mu.
func (a *Account) accrue(p *Reservation, now time.Time) {
	d := now.Sub(p.since)
	if p.since = now; d <= 0 || p.idle {
		return // the clock was set back, or the reservation is idle
	}
	if p.isExec {
		a.addUsage(p.labels, brig.UsageTotals{ExecutionTime: d})
		return
	}
	a.addUsage(p.labels, brig.UsageTotals{CPUTime: time.Duration(p.cpus * float64(d)), Memory: p.memoryGiB * d.Seconds()})
}

// addUsage adds s to the total and to the lines of the labels. The caller holds
// a.mu.
func (a *Account) addUsage(labels map[string]string, s brig.UsageTotals) {
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
func (a *Account) catchUp() {
	if !a.tenant.Quota.HasTimeLimit() {
		return
	}
	now := a.now()
	for p := range a.reservations {
		a.accrue(p, now)
	}
}

// resetDaily resets the day's usage when a new day has begun. The caller holds a.mu.
func (a *Account) resetDaily() {
	if day := brig.DayOf(a.now()); day != a.today {
		a.today, a.spent = day, brig.UsageTotals{}
		clear(a.labels)
	}
}

// Flush returns the usage that has not been written yet, and clears it.
func (a *Account) Flush() (lines []brig.UsageLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.resetDaily()
	for p := range a.reservations {
		a.accrue(p, now)
	}
	for k, s := range a.unflushed {
		if s != (brig.UsageTotals{}) {
			lines = append(lines, brig.UsageLine{Tenant: a.tenant.Name, Day: k.day, Label: k.label, Value: k.value, UsageTotals: s})
		}
	}
	clear(a.unflushed)
	return lines
}

// Restore adds the lines of a Flush again, because the caller could not write
// them.
func (a *Account) Restore(lines []brig.UsageLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range lines {
		k := usageKey{l.Day, l.Label, l.Value}
		a.unflushed[k] = a.unflushed[k].Add(l.UsageTotals)
	}
}

// StopOverdueExecutions ends the executions of a tenant that has used up its time, and reports
// whether the tenant's sandboxes must end, too.
func (a *Account) StopOverdueExecutions() (all bool) {
	a.mu.Lock()
	var candidates []func(error)
	var cause error
	if a.tenant.Quota.HasTimeLimit() && len(a.reservations) > 0 {
		a.resetDaily()
		a.catchUp()
		lives, executions := a.tenant.Quota.CheckTimeQuotas(a.spent, a.now())
		if all, cause = lives != nil, executions; all {
			cause = lives
		}
	}
	if cause != nil {
		for p := range a.reservations {
			if p.isExec && p.stop != nil && p.stopReason == nil {
				p.stopReason = cause
				candidates = append(candidates, p.stop)
			}
		}
	}
	a.mu.Unlock()
	for _, stopExecution := range candidates {
		stopExecution(cause)
	}
	return all
}
