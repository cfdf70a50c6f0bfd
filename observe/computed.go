package observe

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
)

// computed exports metrics computed from the last five minutes.
type computed struct{ m *Metrics }

var (
	quantileDesc = prometheus.NewDesc("brig_execution_percentile_seconds", "Percentiles of the duration of executions in the last five minutes.", []string{"provider", "percentile"}, nil)
	meanDesc     = prometheus.NewDesc("brig_execution_mean_seconds", "Mean duration of executions in the last five minutes.", []string{"provider"}, nil)
	successDesc  = prometheus.NewDesc("brig_execution_success_ratio", "Share of counted executions in the last five minutes that succeeded.", []string{"provider"}, nil)
	errorDesc    = prometheus.NewDesc("brig_execution_error_ratio", "Share of counted executions in the last five minutes that failed or exceeded a limit.", []string{"provider"}, nil)
	availDesc    = prometheus.NewDesc("brig_availability_ratio", "Share of executions and health checks in the last five minutes without a failure of Brig or the provider.", []string{"provider"}, nil)
	apiUpDesc    = prometheus.NewDesc("brig_api_availability_ratio", "Share of calls of a provider's API in the last five minutes with a response below 500.", []string{"provider", "region"}, nil)
	upDesc       = prometheus.NewDesc("brig_provider_up", "Whether the last health check succeeded; without health checks, whether the provider responds.", []string{"provider"}, nil)
	usedDesc     = prometheus.NewDesc("brig_api_rate_limit_used_ratio", "Used share of a provider's rate limit, as last reported in the last five minutes.", []string{"provider", "region"}, nil)
	uptimeDesc   = prometheus.NewDesc("brig_uptime_seconds", "Time since the start of this server.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c computed) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{quantileDesc, meanDesc, successDesc, errorDesc, availDesc, apiUpDesc, upDesc, usedDesc, uptimeDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It exports no values for providers
// without data.
func (c computed) Collect(ch chan<- prometheus.Metric) {
	now := c.m.now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(uptimeDesc, now.Sub(c.m.started).Seconds())
	w := c.m.windows[DefaultWindow]
	for _, provider := range w.names() {
		p := w.sumBefore(provider, now)
		if p.timed > 0 {
			gauge(quantileDesc, p.quantile(0.5), provider, "50")
			gauge(quantileDesc, p.quantile(0.95), provider, "95")
			gauge(quantileDesc, p.quantile(0.99), provider, "99")
			gauge(meanDesc, p.mean(), provider)
		}
		if p.counted > 0 {
			gauge(successDesc, ratio(p.good, p.counted), provider)
			gauge(errorDesc, ratio(p.errored, p.counted), provider)
		}
		if p.attempts > 0 {
			gauge(availDesc, ratio(p.attempts-p.failed, p.attempts), provider)
		}
	}
	for _, s := range c.m.Up(0) {
		gauge(upDesc, s.Value, s.Labels["provider"])
	}
	for _, s := range c.m.RateLimit(0) {
		gauge(usedDesc, s.Value, s.Labels["provider"], s.Labels["region"])
	}
	for _, name := range c.m.apis.names() {
		provider, region, _ := strings.Cut(name, "\x00")
		if p := c.m.apis.sumBefore(name, now); p.attempts > 0 {
			gauge(apiUpDesc, ratio(p.attempts-p.failed, p.attempts), provider, region)
		}
	}
}

// perProvider computes one value for every provider over a window.
func (m *Metrics) perProvider(window time.Duration, f func(pastSums) (v float64, n int64)) (out []brig.Sample) {
	w := m.windows[window]
	if w == nil {
		w = m.windows[DefaultWindow]
	}
	now := m.now()
	for _, provider := range w.names() {
		if v, n := f(w.sumBefore(provider, now)); n > 0 {
			out = append(out, brig.Sample{Labels: map[string]string{"provider": provider}, Value: v, Count: n})
		}
	}
	return out
}

// Availability returns the share of executions and trials that did not fail
// because of Brig or the provider.
func (m *Metrics) Availability(window time.Duration) []brig.Sample {
	return m.perProvider(window, func(p pastSums) (float64, int64) { return ratio(p.attempts-p.failed, p.attempts), p.attempts })
}

// ErrorRate returns the share of executions that hit a limit or failed.
func (m *Metrics) ErrorRate(window time.Duration) []brig.Sample {
	return m.perProvider(window, func(p pastSums) (float64, int64) { return ratio(p.errored, p.counted), p.counted })
}

// MeanSeconds returns the mean duration of executions.
func (m *Metrics) MeanSeconds(window time.Duration) []brig.Sample {
	return m.perProvider(window, func(p pastSums) (float64, int64) { return p.mean(), p.timed })
}

// P95Seconds returns the 95th percentile of the duration of executions.
func (m *Metrics) P95Seconds(window time.Duration) []brig.Sample {
	return m.perProvider(window, func(p pastSums) (float64, int64) { return p.quantile(0.95), p.timed })
}
