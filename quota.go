package brig

import (
	"fmt"
	"math"
	"time"
)

// Quota bounds what a tenant uses of the server, over all its sandboxes. A
// zero field is no bound. Days are those of UTC.
type Quota struct {
	Sandboxes  int // that live at once, one-shots included
	Executions int // that go on at once: runs, commands, code, processes

	ExecutionsPerDay    int64
	ExecutionTimePerDay time.Duration
	// CPUTimePerDay and MemoryPerDay are of what sandboxes reserve: their
	// limits times the time that they live.
	CPUTimePerDay time.Duration
	MemoryPerDay  float64 // GiB-seconds
	EgressPerDay  int64   // bytes

	// Storage is what sandboxes that live may write to their file systems, in
	// bytes: the sum of their disk limits.
	Storage int64
	// Workspaces is what versions of workspaces may take, in bytes. What they
	// have in common counts once.
	Workspaces int64

	// Rate is how many calls a second the tenant may make, and RatePerKey each
	// of its keys; up to two seconds' worth may come at once.
	Rate, RatePerKey float64
}

// DefaultQuota is that of a tenant that is made without one.
func DefaultQuota() Quota { return Quota{Executions: 10, Rate: 200} }

// Check refuses a quota that is none.
func (q Quota) Check() error {
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"sandboxes", float64(q.Sandboxes)}, {"executions", float64(q.Executions)},
		{"executions_per_day", float64(q.ExecutionsPerDay)}, {"execution_ms_per_day", float64(q.ExecutionTimePerDay)},
		{"cpu_ms_per_day", float64(q.CPUTimePerDay)}, {"gib_seconds_per_day", q.MemoryPerDay},
		{"egress_bytes_per_day", float64(q.EgressPerDay)}, {"storage", float64(q.Storage)},
		{"workspaces", float64(q.Workspaces)},
		{"rate", q.Rate}, {"rate_per_key", q.RatePerKey},
	} {
		if f.v < 0 || math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return InvalidField("quota."+f.name, "%v cannot be a bound", f.v).WithHint("give a number above 0, or 0 for no bound")
		}
	}
	return nil
}

// Spent is what was used.
type Spent struct {
	Executions    int64
	ExecutionTime time.Duration
	CPUTime       time.Duration // reserved: processors times seconds
	Memory        float64       // reserved, in GiB-seconds
	Egress        int64         // bytes
	Cost          float64       // of executions, by the rates of their providers
}

// Add returns the sum of both.
func (s Spent) Add(t Spent) Spent {
	return Spent{
		Executions: s.Executions + t.Executions, ExecutionTime: s.ExecutionTime + t.ExecutionTime,
		CPUTime: s.CPUTime + t.CPUTime, Memory: s.Memory + t.Memory, Egress: s.Egress + t.Egress, Cost: s.Cost + t.Cost,
	}
}

// UsageLine is what a tenant used on a day: all of it, or what sandboxes with
// one label did.
type UsageLine struct {
	Tenant, Day  string // the day as 2006-01-02, of UTC
	Label, Value string // empty for the sum of all
	Spent
	// Stored is what versions of workspaces take now, in bytes. Only the sum of
	// today has it, and not while their store cannot be read.
	Stored int64 `json:",omitempty"`
}

// UsageQuery selects usage.
type UsageQuery struct {
	// Tenant is whose. Default the caller's; "*" is all, for operators.
	Tenant string
	// From and To are days, both included. Default today.
	From, To string
	// Label keeps only lines of that label; empty keeps the sums.
	Label string
}

// AllTenants stands for every tenant where one can be named.
const AllTenants = "*"

// DayOf is the day of a moment, as usage is kept.
func DayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// UntilTomorrow is how long the day of a moment lasts.
func UntilTomorrow(t time.Time) time.Duration {
	t = t.UTC()
	return t.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(t)
}

// FitsToday reports which quota of a day has been used up, at a moment of it.
func (q Quota) FitsToday(s Spent, now time.Time) error {
	switch {
	case q.ExecutionsPerDay > 0 && s.Executions >= q.ExecutionsPerDay:
		return OverQuota("executions_per_day", fmt.Sprint(q.ExecutionsPerDay), UntilTomorrow(now))
	case q.ExecutionTimePerDay > 0 && s.ExecutionTime >= q.ExecutionTimePerDay:
		return OverQuota("execution_ms_per_day", q.ExecutionTimePerDay.String(), UntilTomorrow(now))
	}
	return q.FitsReserved(s, now)
}

// FitsReserved is FitsToday of what sandboxes use by living, and send.
func (q Quota) FitsReserved(s Spent, now time.Time) error {
	if err := q.fitsLives(s, now); err != nil {
		return err
	}
	if q.EgressPerDay > 0 && s.Egress >= q.EgressPerDay {
		return OverQuota("egress_bytes_per_day", FormatBytes(q.EgressPerDay), UntilTomorrow(now))
	}
	return nil
}

// fitsLives is FitsReserved of what sandboxes use by living alone.
func (q Quota) fitsLives(s Spent, now time.Time) error {
	switch {
	case q.CPUTimePerDay > 0 && s.CPUTime >= q.CPUTimePerDay:
		return OverQuota("cpu_ms_per_day", q.CPUTimePerDay.String(), UntilTomorrow(now))
	case q.MemoryPerDay > 0 && s.Memory >= q.MemoryPerDay:
		return OverQuota("gib_seconds_per_day", fmt.Sprintf("%g", q.MemoryPerDay), UntilTomorrow(now))
	}
	return nil
}

// OfTime reports whether a quota is used up by nothing but time, so that what
// goes on uses it up as well as what begins.
func (q Quota) OfTime() bool {
	return q.ExecutionTimePerDay != 0 || q.CPUTimePerDay != 0 || q.MemoryPerDay != 0
}

// Ends reports which quota of time has been used up, so that what goes on has
// to end: all that lives, or only what is executed in it.
func (q Quota) Ends(s Spent, now time.Time) (lives, executions error) {
	lives = q.fitsLives(s, now)
	if lives == nil && q.ExecutionTimePerDay > 0 && s.ExecutionTime >= q.ExecutionTimePerDay {
		executions = OverQuota("execution_ms_per_day", q.ExecutionTimePerDay.String(), UntilTomorrow(now))
	}
	return lives, executions
}

// OverQuota is the error of a tenant that has used up a quota.
func OverQuota(field, bound string, retry time.Duration) error {
	e := Errorf(RateLimited, "the tenant's quota of %s is used up", bound).
		WithHint("wait, end what is not needed, or ask the operator for a larger quota.%s", field)
	e.Field, e.RetryAfter = "quota."+field, retry
	return e
}
