package observe_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/observe"
)

// BenchmarkRan measures the cost of metrics for each execution.
func BenchmarkRan(b *testing.B) {
	m, err := observe.New(prometheus.NewRegistry(), observe.Options{})
	if err != nil {
		b.Fatal(err)
	}
	r := brig.ExecutionReport{Provider: "gvisor", Op: "run", Language: "python", Status: brig.RunSuccess, Duration: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		m.ExecutionEnded(r)
	}
}
