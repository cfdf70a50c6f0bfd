package observe

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
)

// Machines exports the running and queued work on each scrape.
type Machines struct {
	Load func() brig.Load
	Pool func(context.Context) ([]brig.PoolClass, error)
	// Context is the context of calls to Pool.
	Context context.Context
}

var (
	poolClassLabels = []string{"provider", "image", "language", "limits"}

	sandboxesDesc  = prometheus.NewDesc("brig_sandboxes_active", "Live sandboxes, including one-shots.", []string{"provider"}, nil)
	executionsDesc = prometheus.NewDesc("brig_executions_active", "Running executions.", []string{"provider"}, nil)
	queueDesc      = prometheus.NewDesc("brig_queue_depth", "Callers that wait for a creation slot.", nil, nil)
	makingDesc     = prometheus.NewDesc("brig_queue_making", "Sandboxes that are being created for callers.", nil, nil)

	sizeDesc    = prometheus.NewDesc("brig_pool_size", "Target number of ready sandboxes.", poolClassLabels, nil)
	readyDesc   = prometheus.NewDesc("brig_pool_ready", "Ready sandboxes.", poolClassLabels, nil)
	refillsDesc = prometheus.NewDesc("brig_pool_making", "Sandboxes that are being created for the pool.", poolClassLabels, nil)
	hitsDesc    = prometheus.NewDesc("brig_pool_hits_total", "Requests that the pool served.", poolClassLabels, nil)
	missesDesc  = prometheus.NewDesc("brig_pool_misses_total", "Requests that the pool could not serve.", poolClassLabels, nil)
	failedDesc  = prometheus.NewDesc("brig_pool_failures_total", "Failed creations of pooled sandboxes.", poolClassLabels, nil)
	refillDesc  = prometheus.NewDesc("brig_pool_refill_seconds", "Median time to create a pooled sandbox, of the last 32.", poolClassLabels, nil)
	inUseDesc   = prometheus.NewDesc("brig_pool_utilisation_ratio", "Share of the target number of sandboxes that is not ready.", poolClassLabels, nil)
)

// Describe implements prometheus.Collector.
func (*Machines) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		sandboxesDesc, executionsDesc, queueDesc, makingDesc, sizeDesc, readyDesc, refillsDesc, hitsDesc, missesDesc, failedDesc, refillDesc, inUseDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Machines) Collect(ch chan<- prometheus.Metric) {
	show := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	load := m.Load()
	show(queueDesc, prometheus.GaugeValue, float64(load.Waiting))
	show(makingDesc, prometheus.GaugeValue, float64(load.Making))
	for provider, n := range load.Sandboxes {
		show(sandboxesDesc, prometheus.GaugeValue, float64(n), provider)
	}
	for provider, n := range load.Executions {
		show(executionsDesc, prometheus.GaugeValue, float64(n), provider)
	}
	classes, err := m.Pool(m.Context)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(sizeDesc, err)
		return
	}
	for _, s := range classes {
		l := s.Limits
		labels := []string{s.Provider, s.Image, string(s.Language), fmt.Sprintf("memory=%s cpus=%g disk=%s processes=%d files=%d",
			brig.FormatBytes(l.Memory), l.CPUs, brig.FormatBytes(l.Disk), l.Processes, l.OpenFiles)}
		show(sizeDesc, prometheus.GaugeValue, float64(s.Target), labels...)
		show(readyDesc, prometheus.GaugeValue, float64(s.Ready), labels...)
		show(refillsDesc, prometheus.GaugeValue, float64(s.Making), labels...)
		show(refillDesc, prometheus.GaugeValue, s.Refill.Seconds(), labels...)
		show(hitsDesc, prometheus.CounterValue, float64(s.Hits), labels...)
		show(missesDesc, prometheus.CounterValue, float64(s.Misses), labels...)
		show(failedDesc, prometheus.CounterValue, float64(s.Failed), labels...)
		if s.Target > 0 {
			show(inUseDesc, prometheus.GaugeValue, max(float64(s.Target-s.Ready), 0)/float64(s.Target), labels...)
		}
	}
}

// PoolFree returns the number of ready sandboxes of each provider that has a
// pool.
func (m *Machines) PoolFree() ([]brig.Sample, error) {
	classes, err := m.Pool(m.Context)
	free, wanted := map[string]int{}, map[string]int{}
	for _, s := range classes {
		free[s.Provider] += s.Ready
		wanted[s.Provider] += s.Target
	}
	var out []brig.Sample
	for provider, n := range wanted {
		if n > 0 {
			out = append(out, brig.Sample{Labels: map[string]string{"provider": provider}, Value: float64(free[provider]), Count: int64(n)})
		}
	}
	return out, err
}
