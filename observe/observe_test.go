package observe_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/observe"
)

// testMetrics is Metrics with a clock that the test sets.
type testMetrics struct {
	*observe.Metrics
	reg *prometheus.Registry
	now time.Time
}

func newTestMetrics(t *testing.T, windows ...time.Duration) *testMetrics {
	t.Helper()
	c := &testMetrics{reg: prometheus.NewRegistry(), now: time.Unix(1e9, 0)}
	var err error
	c.Metrics, err = observe.New(c.reg, observe.Options{Windows: windows, Now: func() time.Time { return c.now }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *testMetrics) recordExecutions(status brig.RunStatus, took time.Duration) {
	c.ExecutionEnded(brig.ExecutionReport{Provider: "p", Op: "run", Language: "python", Status: status, Duration: took})
}

// checkMetrics compares some metrics with their expected text format.
func (c *testMetrics) checkMetrics(t *testing.T, text string, names ...string) {
	t.Helper()
	var plain []string
	for line := range strings.Lines(text) {
		plain = append(plain, strings.TrimSpace(line)+"\n")
	}
	if err := testutil.GatherAndCompare(c.reg, strings.NewReader(strings.Join(plain, "")), names...); err != nil {
		t.Error(err)
	}
}

func onlySample(t *testing.T, list []brig.Sample) brig.Sample {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d samples: %+v", len(list), list)
	}
	return list[0]
}

// TestQuantilesAreWithinFivePercent checks that quantiles differ by at most a twentieth from the
// quantiles of the actual durations.
func TestQuantilesAreWithinFivePercent(t *testing.T) {
	c := newTestMetrics(t)
	r := rand.New(rand.NewPCG(1, 2))
	var all []float64
	for range 5000 {
		s := math.Exp(r.NormFloat64()*1.5 - 2) // from milliseconds to a minute
		all = append(all, s)
		c.recordExecutions(brig.RunSuccess, time.Duration(s*float64(time.Second)))
	}
	slices.Sort(all)
	exact := all[int(math.Ceil(0.95*float64(len(all))))-1]
	s := onlySample(t, c.P95Seconds(observe.DefaultWindow))
	if math.Abs(s.Value/exact-1) > 0.05 || s.Count != 5000 || s.Labels["provider"] != "p" {
		t.Errorf("p95 is %v of %d, exactly %v", s.Value, s.Count, exact)
	}
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	if m := onlySample(t, c.MeanSeconds(observe.DefaultWindow)); math.Abs(m.Value/(sum/5000)-1) > 1e-6 {
		t.Errorf("the mean is %v, exactly %v", m.Value, sum/5000)
	}
}

// TestWindowsDropOldEvents checks that each window drops events that are older than the
// window.
func TestWindowsDropOldEvents(t *testing.T) {
	c := newTestMetrics(t, time.Minute)
	for range 10 {
		c.recordExecutions(brig.RunTimeout, time.Second)
	}
	c.now = c.now.Add(50 * time.Second)
	for range 10 {
		c.recordExecutions(brig.RunSuccess, time.Second)
	}
	if s := onlySample(t, c.ErrorRate(time.Minute)); s.Value != 0.5 || s.Count != 20 {
		t.Errorf("after 50 s: %+v", s)
	}
	c.now = c.now.Add(15 * time.Second)
	if s := onlySample(t, c.ErrorRate(time.Minute)); s.Value != 0 || s.Count != 10 {
		t.Errorf("after 65 s, in a minute: %+v", s)
	}
	if s := onlySample(t, c.ErrorRate(observe.DefaultWindow)); s.Value != 0.5 {
		t.Errorf("after 65 s, in five minutes: %+v", s)
	}
	c.now = c.now.Add(time.Hour)
	if list := c.ErrorRate(observe.DefaultWindow); len(list) != 0 {
		t.Errorf("after an hour: %+v", list)
	}
	c.recordExecutions(brig.RunSuccess, time.Second) // reuses a slot
	if s := onlySample(t, c.ErrorRate(observe.DefaultWindow)); s.Count != 1 || s.Value != 0 {
		t.Errorf("a slot remembers what was in it an hour ago: %+v", s)
	}
}

// TestCallerErrorsDoNotAffectAvailability checks that a caller's errors do not affect
// availability, and that trials do.
func TestCallerErrorsDoNotAffectAvailability(t *testing.T) {
	c := newTestMetrics(t)
	for _, s := range brig.RunStatuses {
		c.recordExecutions(s, time.Second)
	}
	if s := onlySample(t, c.ErrorRate(observe.DefaultWindow)); s.Count != 5 || s.Value != 3.0/5 {
		t.Errorf("errors: %+v", s)
	}
	if s := onlySample(t, c.Availability(observe.DefaultWindow)); s.Count != 5 || s.Value != 4.0/5 {
		t.Errorf("availability: %+v", s)
	}
	if s := onlySample(t, c.MeanSeconds(observe.DefaultWindow)); s.Count != 4 {
		t.Errorf("what failed has a duration: %+v", s)
	}
	c.ProviderTested("p", time.Second, errors.New("x"))
	if s := onlySample(t, c.Availability(observe.DefaultWindow)); s.Count != 6 || s.Value != 4.0/6 {
		t.Errorf("with a trial that failed: %+v", s)
	}
	c.checkMetrics(t, `# HELP brig_attempts_total Executions and health checks that count towards availability, by result.
		# TYPE brig_attempts_total counter
		brig_attempts_total{provider="p",result="failed"} 2
		brig_attempts_total{provider="p",result="ok"} 4
	`, "brig_attempts_total")
}

// TestMetricsMatchProviderCalls checks that the metrics match the calls that a network provider
// reports. Some calls are throttled, some fail, and one is slow.
func TestMetricsMatchProviderCalls(t *testing.T) {
	c := newTestMetrics(t)
	for i, status := range []int{200, 429, 500, 200, 429, 404, 200, 0} {
		took := time.Millisecond
		if i == 3 {
			took = 120 * time.Millisecond
		}
		c.Called("cloud", "eu-1", "create", status, took)
		if status != 0 {
			c.Allowance("cloud", "eu-1", 20, float64(19-i))
		}
	}
	c.checkMetrics(t, `# HELP brig_api_calls_total Calls of a provider's API, by response status; none if there was no response.
		# TYPE brig_api_calls_total counter
		brig_api_calls_total{code="200",provider="cloud",region="eu-1"} 3
		brig_api_calls_total{code="404",provider="cloud",region="eu-1"} 1
		brig_api_calls_total{code="429",provider="cloud",region="eu-1"} 2
		brig_api_calls_total{code="500",provider="cloud",region="eu-1"} 1
		brig_api_calls_total{code="none",provider="cloud",region="eu-1"} 1
		# HELP brig_api_errors_total Calls of a provider's API without a response or with a status of 400 or above.
		# TYPE brig_api_errors_total counter
		brig_api_errors_total{code="404",provider="cloud",region="eu-1"} 1
		brig_api_errors_total{code="429",provider="cloud",region="eu-1"} 2
		brig_api_errors_total{code="500",provider="cloud",region="eu-1"} 1
		brig_api_errors_total{code="none",provider="cloud",region="eu-1"} 1
		# HELP brig_api_throttled_total Calls of a provider's API that returned 429.
		# TYPE brig_api_throttled_total counter
		brig_api_throttled_total{provider="cloud",region="eu-1"} 2
		# HELP brig_api_availability_ratio Share of calls of a provider's API in the last five minutes with a response below 500.
		# TYPE brig_api_availability_ratio gauge
		brig_api_availability_ratio{provider="cloud",region="eu-1"} 0.75
		# HELP brig_api_rate_limit_used_ratio Used share of a provider's rate limit, as last reported in the last five minutes.
		# TYPE brig_api_rate_limit_used_ratio gauge
		brig_api_rate_limit_used_ratio{provider="cloud",region="eu-1"} 0.35
	`, "brig_api_calls_total", "brig_api_errors_total", "brig_api_throttled_total", "brig_api_availability_ratio", "brig_api_rate_limit_used_ratio")
	families, err := c.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "brig_api_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		fast := uint64(0)
		for _, b := range h.GetBucket() {
			if b.GetUpperBound() == 0.1 {
				fast = b.GetCumulativeCount()
			}
		}
		if h.GetSampleCount() != 8 || fast != 7 || h.GetSampleSum() < 0.12 {
			t.Errorf("eight calls, one of which took 120 ms: %d, %d within 100 ms, %v s", h.GetSampleCount(), fast, h.GetSampleSum())
		}
	}
	if s := onlySample(t, c.RateLimit(0)); s.Value != 0.35 || s.Labels["provider"] != "cloud" || s.Labels["region"] != "eu-1" {
		t.Errorf("the rate limit: %+v", s)
	}
	// A provider without recent calls has no rate limit.
	c.now = c.now.Add(10 * time.Minute)
	if list := c.RateLimit(0); len(list) != 0 {
		t.Errorf("after ten minutes: %+v", list)
	}
}

func TestSpendingMatchesRecordedCosts(t *testing.T) {
	now := time.Date(2026, 11, 14, 12, 0, 0, 0, time.UTC)
	line := func(tenant, day string, cost float64, label ...string) brig.UsageLine {
		return brig.UsageLine{Tenant: tenant, Day: day, Label: strings.Join(label, ""), UsageTotals: brig.UsageTotals{Cost: cost}}
	}
	s := &observe.Spending{
		Context: t.Context(), Now: func() time.Time { return now },
		Tenants: func(context.Context) ([]*brig.Tenant, error) {
			return []*brig.Tenant{{Name: "a", Budget: 10}, {Name: "b"}}, nil
		},
		Usage: func(_ context.Context, tenant, from, to string) ([]brig.UsageLine, error) {
			if tenant != brig.AllTenants || from != "2026-11-01" || to != "2026-11-14" {
				t.Errorf("asked for %s from %s to %s", tenant, from, to)
			}
			return []brig.UsageLine{
				line("a", "2026-11-02", 3), line("a", "2026-11-10", 1), line("b", "2026-11-10", 1), line("b", "2026-11-12", 4),
				line("a", "2026-11-14", 5), line("a", "2026-11-14", 5, "team"), line("b", "2026-11-14", 4),
			}, nil
		},
	}
	ratio, err := s.CostRatio()
	if err != nil {
		t.Fatal(err)
	}
	// The cost is nine today, and two and four on two days of the previous
	// week.
	if r := onlySample(t, ratio); r.Value != 3 || r.Count != 2 {
		t.Errorf("%+v", r)
	}
	budgets, err := s.Budgets()
	if err != nil {
		t.Fatal(err)
	}
	if b := onlySample(t, budgets); b.Value != 0.9 || b.Labels["tenant"] != "a" {
		t.Errorf("%+v", b)
	}
	// Only tenants with a budget have series.
	reg := prometheus.NewRegistry()
	reg.MustRegister(s)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP brig_cost_daily_average Mean daily cost of executions over the seven days before, without days that have none.
		# TYPE brig_cost_daily_average gauge
		brig_cost_daily_average 3
		# HELP brig_cost_today Cost of executions of this day in UTC.
		# TYPE brig_cost_today gauge
		brig_cost_today 9
		# HELP brig_tenant_budget Monthly budget of a tenant, beyond which an alert fires.
		# TYPE brig_tenant_budget gauge
		brig_tenant_budget{tenant="a"} 10
		# HELP brig_tenant_cost_month Cost of a tenant's executions in this calendar month, for tenants with a budget.
		# TYPE brig_tenant_cost_month gauge
		brig_tenant_cost_month{tenant="a"} 9
	`)); err != nil {
		t.Error(err)
	}
}

// TestTrialResultIsValidUntilNextTrial checks that the result of a trial remains valid until
// the next trial can replace it, even if the interval is long. A rate limit
// expires earlier.
func TestTrialResultIsValidUntilNextTrial(t *testing.T) {
	now := time.Unix(1e9, 0)
	m, err := observe.New(prometheus.NewRegistry(), observe.Options{HealthInterval: time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	m.ProviderTested("p", time.Second, errors.New("x"))
	for _, at := range []struct {
		later time.Duration
		said  int
	}{{0, 1}, {time.Hour, 1}, {2 * time.Hour, 1}, {2*time.Hour + time.Second, 0}} {
		now = time.Unix(1e9, 0).Add(at.later)
		if got := m.Up(0); len(got) != at.said {
			t.Errorf("%v after a trial: %+v", at.later, got)
		}
	}
}
