package alert

import (
	"time"

	"github.com/brig-run/brig"
)

// Figure is the name of a measured value. Options.Figures contains a source for each figure.
type Figure string

// These are the figures.
const (
	Availability Figure = "availability"
	ErrorRate    Figure = "error_rate"
	MeanSeconds  Figure = "mean_seconds"
	P95Seconds   Figure = "p95_seconds"
	PoolFree     Figure = "pool_free"
	ProviderUp   Figure = "provider_up"
	CostRatio    Figure = "cost_ratio"
	RateLimit    Figure = "rate_limit"
	Memory       Figure = "memory"
	Budget       Figure = "budget"
)

// Unit is the format of a value.
type Unit string

// These are the units of values.
const (
	Share   Unit = "share" // 0.05 is 5 %
	Seconds Unit = "seconds"
	Number  Unit = "number"
)

// Rule is one row of the table.
type Rule struct {
	Name     string
	Severity brig.Severity
	Figure   Figure
	Unit     Unit
	// Under makes the alert fire if the value is below the threshold.
	// Otherwise, it fires if the value is above it.
	Under     bool
	Threshold float64
	// Window is the time over which the value is measured. It is zero for an
	// instantaneous value. For is the time for which the condition must hold.
	Window, For time.Duration
	// Least is the minimum number of items over which the value must be measured.
	Least int64
	// Summary describes the problem. It may contain {value}, {threshold} and
	// labels in braces. Hint suggests a fix.
	Summary, Hint string
	// Measure is the PromQL expression of the value, with {window}. Guard is an
	// additional condition, with {window} and {least}.
	Measure, Guard string
}

const (
	lookBack = 5 * time.Minute
	counted  = `sum by (provider) (increase(brig_executions_total{status=~"success|error|timeout|out_of_memory|failed"}[{window}])) >= {least}`
	timed    = `sum by (provider) (increase(brig_execution_seconds_count[{window}])) >= {least}`
)

// Rules returns the table with its defaults.
func Rules() []Rule {
	return []Rule{
		{
			Name: "BrigAvailability", Severity: brig.Critical, Figure: Availability, Unit: Share, Under: true, Threshold: 0.99,
			Window: lookBack, For: time.Minute, Least: 3,
			Summary: "only {value} of executions and trials on {provider} were not failed by Brig or the provider",
			Hint:    "look for SB001, SB003, SB004, SB009 and SB018 in the log, and at brig_errors_total",
			Measure: `sum by (provider) (increase(brig_attempts_total{result="ok"}[{window}])) / sum by (provider) (increase(brig_attempts_total[{window}]))`,
			Guard:   `sum by (provider) (increase(brig_attempts_total[{window}])) >= {least}`,
		},
		{
			Name: "BrigErrorRate", Severity: brig.Critical, Figure: ErrorRate, Unit: Share, Threshold: 0.05,
			Window: lookBack, For: time.Minute, Least: 20,
			Summary: "{value} of executions on {provider} hit a limit or failed",
			Hint:    "brig_executions_total shows the status and code; programs that fail by themselves do not count",
			Measure: `sum by (provider) (increase(brig_executions_total{status=~"timeout|out_of_memory|failed"}[{window}])) / sum by (provider) (increase(brig_executions_total{status=~"success|error|timeout|out_of_memory|failed"}[{window}]))`,
			Guard:   counted,
		},
		{
			Name: "BrigSlowExecutions", Severity: brig.Critical, Figure: MeanSeconds, Unit: Seconds, Threshold: 10,
			Window: lookBack, For: time.Minute, Least: 3,
			Summary: "executions on {provider} take {value} on average",
			Hint:    "check whether the machine is overloaded, or lower the maximum timeout",
			Measure: `sum by (provider) (increase(brig_execution_seconds_sum[{window}])) / sum by (provider) (increase(brig_execution_seconds_count[{window}]))`,
			Guard:   timed,
		},
		{
			Name: "BrigPoolExhausted", Severity: brig.Critical, Figure: PoolFree, Unit: Number, Under: true, Threshold: 1,
			For:     30 * time.Second,
			Summary: "no sandbox waits on {provider}, though some should",
			Hint:    "raise pool.size or pool.memory, or give the server more processors; look for brig_pool_failures_total",
			Measure: `sum by (provider) (brig_pool_ready)`,
			Guard:   `sum by (provider) (brig_pool_size) > 0`,
		},
		{
			Name: "BrigProviderDown", Severity: brig.Critical, Figure: ProviderUp, Unit: Number, Under: true, Threshold: 1,
			For:     2 * time.Minute,
			Summary: "{provider} does not answer, or its test program fails",
			Hint:    "run brig provider test {provider}, see the server's log, and run brig doctor for this machine",
			Measure: `brig_provider_up`,
		},
		{
			Name: "BrigCostSpike", Severity: brig.Warning, Figure: CostRatio, Unit: Number, Threshold: 2,
			Summary: "today has cost {value} times what a day of the last week has",
			Hint:    "brig usage --tenant '*' shows whose executions these are",
			Measure: `brig_cost_today / brig_cost_daily_average`,
			Guard:   `brig_cost_daily_average > 0`,
		},
		{
			Name: "BrigRateLimitNear", Severity: brig.Warning, Figure: RateLimit, Unit: Share, Threshold: 0.8,
			For:     30 * time.Second,
			Summary: "{value} of the rate limit of {provider} in {region} is used up",
			Hint:    "spread the load over other providers or regions, or ask the provider for more",
			Measure: `brig_api_rate_limit_used_ratio`,
		},
		{
			Name: "BrigMemoryHigh", Severity: brig.Warning, Figure: Memory, Unit: Share, Threshold: 0.9,
			For:     2 * time.Minute,
			Summary: "{value} of the machine's memory is used",
			Hint:    "lower pool.memory or the tenants' quotas; at 95 % no more sandboxes are made",
			Measure: `brig_host_memory_used_ratio`,
		},
		{
			Name: "BrigSlowTail", Severity: brig.Warning, Figure: P95Seconds, Unit: Seconds, Threshold: 5,
			Window: lookBack, For: time.Minute, Least: 20,
			Summary: "one in twenty executions on {provider} takes longer than {value}",
			Hint:    "check whether the machine is overloaded, and which operations are slow in brig_execution_seconds",
			Measure: `histogram_quantile(0.95, sum by (provider, le) (increase(brig_execution_seconds_bucket[{window}])))`,
			Guard:   timed,
		},
		{
			Name: "BrigBudgetNear", Severity: brig.Warning, Figure: Budget, Unit: Share, Threshold: 0.8,
			Summary: "the tenant {tenant} has spent {value} of this month's budget",
			Hint:    "brig usage --tenant {tenant} shows the usage; brig tenant update {tenant} --budget raises the budget",
			Measure: `brig_tenant_cost_month / brig_tenant_budget`,
		},
		{
			Name: "BrigBudgetSpent", Severity: brig.Critical, Figure: Budget, Unit: Share, Threshold: 1,
			Summary: "the tenant {tenant} has spent {value} of this month's budget",
			Hint:    "brig usage --tenant {tenant} shows the usage; brig tenant update {tenant} --budget raises the budget, and a quota stops the usage",
			Measure: `brig_tenant_cost_month / brig_tenant_budget`,
		},
	}
}

// isMet reports whether a sample meets the condition of the rule.
func (r Rule) isMet(s brig.Sample) bool {
	if s.Count < r.Least {
		return false
	}
	if r.Under {
		return s.Value < r.Threshold
	}
	return s.Value > r.Threshold
}
