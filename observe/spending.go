package observe

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
)

// Spending exports the recorded costs by day and by month. They persist across
// restarts.
type Spending struct {
	// Tenants and Usage read the records.
	Tenants func(context.Context) ([]*brig.Tenant, error)
	Usage   func(ctx context.Context, tenant, from, to string) ([]brig.UsageLine, error)
	Context context.Context
	// Every is the minimum interval between reads. The default is half a minute.
	Every time.Duration
	Now   func() time.Time

	mu     sync.Mutex // guards the fields below
	readAt time.Time
	last   costTotals
	err    error
}

// costTotals holds the computed costs.
type costTotals struct {
	today, average float64 // of all tenants; average is the mean daily cost of the previous week
	daysWithCost   int     // number of days of that week with costs
	month, budget  map[string]float64
}

var (
	todayDesc   = prometheus.NewDesc("brig_cost_today", "Cost of executions of this day in UTC.", nil, nil)
	averageDesc = prometheus.NewDesc("brig_cost_daily_average", "Mean daily cost of executions over the seven days before, without days that have none.", nil, nil)
	monthDesc   = prometheus.NewDesc("brig_tenant_cost_month", "Cost of a tenant's executions in this calendar month, for tenants with a budget.", []string{"tenant"}, nil)
	budgetDesc  = prometheus.NewDesc("brig_tenant_budget", "Monthly budget of a tenant, beyond which an alert fires.", []string{"tenant"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Spending) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{todayDesc, averageDesc, monthDesc, budgetDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Spending) Collect(ch chan<- prometheus.Metric) {
	now, err := s.read()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(todayDesc, err)
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(todayDesc, now.today)
	gauge(averageDesc, now.average)
	for tenant, budget := range now.budget {
		gauge(monthDesc, now.month[tenant], tenant)
		gauge(budgetDesc, budget, tenant)
	}
}

// read reads the records, unless it has read them recently.
func (s *Spending) read() (costTotals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := s.Every
	if every == 0 {
		every = 30 * time.Second
	}
	now := s.Now()
	if !s.readAt.IsZero() && now.Sub(s.readAt) < every && now.After(s.readAt) {
		return s.last, s.err
	}
	s.readAt = now
	s.last, s.err = s.sum(now)
	return s.last, s.err
}

const week = 7

func (s *Spending) sum(now time.Time) (costTotals, error) {
	out := costTotals{month: map[string]float64{}, budget: map[string]float64{}}
	tenants, err := s.Tenants(s.Context)
	if err != nil {
		return out, err
	}
	today, first := brig.DayOf(now), brig.DayOf(now.AddDate(0, 0, -week))
	month, _ := brig.MonthOf(now)
	lines, err := s.Usage(s.Context, brig.AllTenants, min(first, month), today)
	if err != nil {
		return out, err
	}
	for _, t := range tenants {
		if t.Budget > 0 {
			out.budget[t.Name] = t.Budget
		}
	}
	days := map[string]bool{}
	for _, l := range lines {
		if l.Label != "" {
			continue
		}
		if l.Day >= month {
			out.month[l.Tenant] += l.Cost
		}
		switch {
		case l.Day == today:
			out.today += l.Cost
		case l.Day >= first && l.Cost > 0:
			out.average += l.Cost
			days[l.Day] = true
		}
	}
	if out.daysWithCost = len(days); out.daysWithCost > 0 {
		out.average /= float64(out.daysWithCost)
	}
	return out, nil
}

// CostRatio returns the cost of the current day as a multiple of the daily
// average. If there is no average, it returns no sample.
func (s *Spending) CostRatio() ([]brig.Sample, error) {
	now, err := s.read()
	if err != nil || now.average == 0 {
		return nil, err
	}
	return []brig.Sample{{Value: now.today / now.average, Count: int64(now.daysWithCost)}}, nil
}

// Budgets returns the spent share of each tenant's budget, for tenants with a budget.
func (s *Spending) Budgets() (out []brig.Sample, err error) {
	now, err := s.read()
	for tenant, budget := range now.budget {
		out = append(out, brig.Sample{Labels: map[string]string{"tenant": tenant}, Value: now.month[tenant] / budget, Count: 1})
	}
	return out, err
}
