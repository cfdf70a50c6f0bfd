package brig

import (
	"math"
	"time"
)

// Rate is what a provider asks for executions, in an operator's currency.
type Rate struct {
	PerCall      float64 // for each execution
	PerSecond    float64 // for each second of one
	PerGiBSecond float64 // for each second of one and GiB of its sandbox's memory
}

// Check refuses a rate that is none.
func (r Rate) Check(field string) error {
	for _, v := range []float64{r.PerCall, r.PerSecond, r.PerGiBSecond} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return InvalidField(field, "%v cannot be a price", v).WithHint("give a number that is not negative")
		}
	}
	return nil
}

// Cost is what some executions cost that took a time together, in sandboxes of
// a memory limit.
func (r Rate) Cost(calls int64, took time.Duration, memory int64) float64 {
	s := took.Seconds()
	return r.PerCall*float64(calls) + s*(r.PerSecond+r.PerGiBSecond*float64(memory)/GiB)
}

// MonthOf is the first and the last day of a moment's month, as usage is kept.
func MonthOf(t time.Time) (first, last string) {
	t = t.UTC()
	begin := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return DayOf(begin), DayOf(begin.AddDate(0, 1, -1))
}
