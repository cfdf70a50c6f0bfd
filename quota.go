package brig

import (
	"fmt"
	"math"
	"time"
)

// Quota bounds a tenant's use of the server across all its sandboxes. A zero
// field is unlimited. Days are in UTC.
type Quota struct {
	Sandboxes int // concurrent live sandboxes, including those of runs
	// Paused bounds the paused sandboxes, including paused copies. Zero means
	// DefaultPaused.
	Paused     int
	Executions int // concurrent runs, commands, code and processes

	ExecutionsPerDay    int64
	ExecutionTimePerDay time.Duration
	// CPUTimePerDay and MemoryPerDay count reserved resources: a sandbox's
	// limits times its lifetime.
	CPUTimePerDay time.Duration
	MemoryPerDay  float64 // GiB-seconds
	EgressPerDay  int64   // bytes

	// Storage bounds the bytes that live sandboxes may write to their file
	// systems: the sum of their disk limits.
	Storage int64
	// Workspaces bounds the bytes of workspace versions. Shared contents count
	// once.
	Workspaces int64
	// Volumes bounds the sum of the sizes of volumes, in bytes. Zero means DefaultVolumes.
	Volumes int64
	// Outputs bounds the bytes of ended executions and outcomes of runs; see Keep.
	// When it is exceeded, no call is rejected; instead, the oldest records are
	// deleted. Zero means the server's default bound.
	Outputs int64

	// Rate is the allowed number of calls per second for the tenant, and
	// RatePerKey for each of its keys and persons. The burst size is two seconds' worth of
	// calls.
	Rate, RatePerKey float64
}

// DefaultPaused is the number of paused sandboxes that a tenant may have if its
// quota does not set one.
const DefaultPaused = 1000

// MaxPaused returns the number of paused sandboxes that the quota allows.
func (q Quota) MaxPaused() int {
	if q.Paused == 0 {
		return DefaultPaused
	}
	return q.Paused
}

// DefaultVolumes is the sum of the sizes of volumes that a tenant may have if its quota does not set
// one.
const DefaultVolumes = 100 * GiB

// MaxVolumeBytes returns the sum of the sizes of volumes that the quota allows.
func (q Quota) MaxVolumeBytes() int64 {
	if q.Volumes == 0 {
		return DefaultVolumes
	}
	return q.Volumes
}

// DefaultQuota returns the quota of a tenant that is created without one.
func DefaultQuota() Quota { return Quota{Executions: 10, Rate: 200} }

// Check returns an error for an invalid quota.
func (q Quota) Check() error {
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"sandboxes", float64(q.Sandboxes)}, {"paused", float64(q.Paused)}, {"executions", float64(q.Executions)},
		{"executions_per_day", float64(q.ExecutionsPerDay)}, {"execution_ms_per_day", float64(q.ExecutionTimePerDay)},
		{"cpu_ms_per_day", float64(q.CPUTimePerDay)}, {"gib_seconds_per_day", q.MemoryPerDay},
		{"egress_bytes_per_day", float64(q.EgressPerDay)}, {"storage", float64(q.Storage)},
		{"workspaces", float64(q.Workspaces)}, {"volumes", float64(q.Volumes)}, {"outputs", float64(q.Outputs)},
		{"rate", q.Rate}, {"rate_per_key", q.RatePerKey},
	} {
		if f.v < 0 || math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return InvalidField("quota."+f.name, "%v is not a valid limit", f.v).WithHint("give a number above 0, or 0 for unlimited")
		}
	}
	return nil
}

// UsageTotals is the usage of a period, in every unit that Brig counts.
type UsageTotals struct {
	Executions    int64
	ExecutionTime time.Duration
	CPUTime       time.Duration // reserved CPU time: processors times seconds
	Memory        float64       // reserved memory, in GiB-seconds
	Egress        int64         // bytes
	Cost          float64       // cost of executions, at their providers' rates
}

// Add returns the sum of s and t.
func (s UsageTotals) Add(t UsageTotals) UsageTotals {
	return UsageTotals{
		Executions: s.Executions + t.Executions, ExecutionTime: s.ExecutionTime + t.ExecutionTime,
		CPUTime: s.CPUTime + t.CPUTime, Memory: s.Memory + t.Memory, Egress: s.Egress + t.Egress, Cost: s.Cost + t.Cost,
	}
}

// UsageLine is a tenant's usage on one day: in total, or of the sandboxes with
// one label.
type UsageLine struct {
	Tenant, Day  string // the UTC day as 2006-01-02
	Label, Value string // empty for the total
	UsageTotals
	// Stored is the current size of workspace versions in bytes. It is set only
	// in today's total, and only if the store is readable.
	Stored int64 `json:",omitempty"`
}

// UsageQuery selects usage.
type UsageQuery struct {
	// Tenant selects the tenant. Default: the caller's tenant. Operators may
	// use "*" for all tenants.
	Tenant string
	// From and To are the first and the last day. Default: today.
	From, To string
	// Label selects only lines with that label; empty selects the totals.
	Label string
}

// AllTenants stands for every tenant in place of a tenant's name.
const AllTenants = "*"

// DayOf returns the day of a time in the format of usage records.
func DayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// UntilTomorrow returns the time until the end of the day.
func UntilTomorrow(t time.Time) time.Duration {
	t = t.UTC()
	return t.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(t)
}

// CheckToday returns an error if a daily quota is exhausted at the time now.
func (q Quota) CheckToday(s UsageTotals, now time.Time) error {
	switch {
	case q.ExecutionsPerDay > 0 && s.Executions >= q.ExecutionsPerDay:
		return QuotaExceededError("executions_per_day", fmt.Sprint(q.ExecutionsPerDay), UntilTomorrow(now))
	case q.ExecutionTimePerDay > 0 && s.ExecutionTime >= q.ExecutionTimePerDay:
		return QuotaExceededError("execution_ms_per_day", q.ExecutionTimePerDay.String(), UntilTomorrow(now))
	}
	return q.CheckReserved(s, now)
}

// CheckReserved is like CheckToday, for the reserved resources and the egress of
// sandboxes.
func (q Quota) CheckReserved(s UsageTotals, now time.Time) error {
	if err := q.checkLives(s, now); err != nil {
		return err
	}
	if q.EgressPerDay > 0 && s.Egress >= q.EgressPerDay {
		return QuotaExceededError("egress_bytes_per_day", FormatBytes(q.EgressPerDay), UntilTomorrow(now))
	}
	return nil
}

// checkLives is like CheckReserved, but only for reserved resources.
func (q Quota) checkLives(s UsageTotals, now time.Time) error {
	switch {
	case q.CPUTimePerDay > 0 && s.CPUTime >= q.CPUTimePerDay:
		return QuotaExceededError("cpu_ms_per_day", q.CPUTimePerDay.String(), UntilTomorrow(now))
	case q.MemoryPerDay > 0 && s.Memory >= q.MemoryPerDay:
		return QuotaExceededError("gib_seconds_per_day", fmt.Sprintf("%g", q.MemoryPerDay), UntilTomorrow(now))
	}
	return nil
}

// HasTimeLimit reports whether the quota bounds time, so that sandboxes can exhaust it
// merely by continuing to run.
func (q Quota) HasTimeLimit() bool {
	return q.ExecutionTimePerDay != 0 || q.CPUTimePerDay != 0 || q.MemoryPerDay != 0
}

// CheckTimeQuotas returns an error for an exhausted time quota. If lives is not nil, the
// engine ends all sandboxes of the tenant; if only executions is not nil, it ends
// only the executions.
func (q Quota) CheckTimeQuotas(s UsageTotals, now time.Time) (lives, executions error) {
	lives = q.checkLives(s, now)
	if lives == nil && q.ExecutionTimePerDay > 0 && s.ExecutionTime >= q.ExecutionTimePerDay {
		executions = QuotaExceededError("execution_ms_per_day", q.ExecutionTimePerDay.String(), UntilTomorrow(now))
	}
	return lives, executions
}

// QuotaExceededError returns the error for an exhausted quota.
func QuotaExceededError(field, bound string, retry time.Duration) error {
	e := Errorf(RateLimited, "the tenant's quota of %s is used up", bound).
		WithHint("wait, free some of it, or ask the operator for a larger quota.%s", field)
	e.Field, e.RetryAfter = "quota."+field, retry
	return e
}

// Rate is a provider's price for executions, in the operator's currency.
type Rate struct {
	PerCall      float64 // for each execution
	PerSecond    float64 // for each second of an execution
	PerGiBSecond float64 // for each second of an execution and GiB of its sandbox's memory
}

// Check returns an error for an invalid rate.
func (r Rate) Check(field string) error {
	for _, v := range []float64{r.PerCall, r.PerSecond, r.PerGiBSecond} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return InvalidField(field, "%v cannot be a price", v).WithHint("give a number that is not negative")
		}
	}
	return nil
}

// Cost returns the cost of the given number of executions, with their total
// duration and the memory limit of their sandboxes.
func (r Rate) Cost(calls int64, duration time.Duration, memory int64) float64 {
	s := duration.Seconds()
	return r.PerCall*float64(calls) + s*(r.PerSecond+r.PerGiBSecond*float64(memory)/GiB)
}

// MonthOf returns the first and the last day of a time's month, in the format
// of usage records.
func MonthOf(t time.Time) (first, last string) {
	t = t.UTC()
	begin := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return DayOf(begin), DayOf(begin.AddDate(0, 1, -1))
}
