package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
)

// poolMetrics shows the pool to Prometheus, one series for each kind of
// sandbox.
type poolMetrics struct{ svc brig.Service }

var (
	poolLabels = []string{"image", "language", "limits"}
	poolDescs  = map[string]*prometheus.Desc{
		"size":   prometheus.NewDesc("brig_pool_size", "Sandboxes that should wait.", poolLabels, nil),
		"ready":  prometheus.NewDesc("brig_pool_ready", "Sandboxes that wait.", poolLabels, nil),
		"making": prometheus.NewDesc("brig_pool_making", "Sandboxes that are being made.", poolLabels, nil),
		"hits":   prometheus.NewDesc("brig_pool_hits_total", "Sandboxes that waited when they were asked for.", poolLabels, nil),
		"misses": prometheus.NewDesc("brig_pool_misses_total", "Sandboxes that had to be made when they were asked for.", poolLabels, nil),
		"failed": prometheus.NewDesc("brig_pool_failures_total", "Sandboxes that could not be made ahead of time.", poolLabels, nil),
		"refill": prometheus.NewDesc("brig_pool_refill_seconds", "Median time to make one of the last ones.", poolLabels, nil),
	}
)

// Describe implements prometheus.Collector.
func (poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range poolDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m poolMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx := brig.WithActor(context.Background(), brig.Actor{Name: "metrics", Tenant: tenant, Role: brig.Operator})
	shelves, err := m.svc.Pool(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(poolDescs["size"], err)
		return
	}
	for _, s := range shelves {
		l := s.Limits
		limits := fmt.Sprintf("memory=%s cpus=%g disk=%s processes=%d files=%d",
			brig.FormatBytes(l.Memory), l.CPUs, brig.FormatBytes(l.Disk), l.Processes, l.OpenFiles)
		labels := []string{s.Image, string(s.Language), limits}
		for name, v := range map[string]float64{
			"size": float64(s.Target), "ready": float64(s.Ready), "making": float64(s.Making), "refill": s.Refill.Seconds(),
		} {
			ch <- prometheus.MustNewConstMetric(poolDescs[name], prometheus.GaugeValue, v, labels...)
		}
		for name, v := range map[string]int64{"hits": s.Hits, "misses": s.Misses, "failed": s.Failed} {
			ch <- prometheus.MustNewConstMetric(poolDescs[name], prometheus.CounterValue, float64(v), labels...)
		}
	}
}
