package main

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/observe/history"
)

// minSampleInterval is the minimum interval over which a sandbox's CPU usage is measured if there
// is no earlier measurement.
const minSampleInterval = 100 * time.Millisecond

// meter derives the CPU usage of sandboxes from their CPU time. It stores the last measurement of
// each sandbox.
type meter struct {
	engine *engine.Engine
	// history is the usage of the sandboxes of E2B's clients.
	history *history.Recorder

	mu   sync.Mutex // guards the field below
	last map[string]brig.Usage
}

// measureCPUPercent returns the current usage of a sandbox, and its CPU usage since the last
// request in percent of one CPU.
func (m *meter) measureCPUPercent(ctx context.Context, id string) (*brig.Usage, float64, error) {
	m.mu.Lock()
	before, known := m.last[id]
	m.mu.Unlock()
	if !known || time.Since(before.At) > time.Minute {
		first, err := m.engine.Usage(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		before = *first
		time.Sleep(minSampleInterval)
	}
	now, err := m.engine.Usage(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || len(m.last) > 10_000 {
		m.last = map[string]brig.Usage{}
	}
	m.last[id] = *now
	span := now.At.Sub(before.At)
	if span <= 0 {
		return now, 0, nil
	}
	return now, 100 * float64(now.CPU-before.CPU) / float64(span), nil
}

// sandboxMetrics returns the metrics of a sandbox for the data plane.
func (m *meter) sandboxMetrics(ctx context.Context, id string) (envd.Metrics, error) {
	box, err := m.engine.Get(ctx, id)
	if err != nil {
		return envd.Metrics{}, err
	}
	now, percent, err := m.measureCPUPercent(ctx, id)
	if err != nil {
		return envd.Metrics{}, err
	}
	l := box.Spec.Limits
	return envd.Metrics{
		Time: now.At, CPUs: l.CPUs, CPUPercent: percent,
		Memory: now.Memory, MemoryCache: now.Cache, MemoryMax: l.Memory, Disk: max(now.Disk, 0), DiskMax: l.Disk,
	}, nil
}

// controlMetrics returns the usage of a sandbox over time for the control plane, and its current
// usage if the history has none yet. They are empty if the provider does not measure usage. The
// caller has access to the sandbox.
func (m *meter) controlMetrics(ctx context.Context, id string) ([]e2b.Metric, error) {
	box, samples := m.history.Sandbox(id)
	if box != nil && len(samples) > 0 {
		return historyMetrics(box, samples), nil
	}
	now, err := m.sandboxMetrics(ctx, id)
	switch brig.KindOf(err) {
	case brig.Unimplemented, brig.FailedPrecondition: // FailedPrecondition: the sandbox is paused
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []e2b.Metric{{
		At: now.Time, CPUs: max(1, int(now.CPUs)), CPUPercent: now.CPUPercent,
		Memory: now.Memory, MemoryCache: now.MemoryCache, MemoryTotal: now.MemoryMax, DiskUsed: now.Disk, DiskTotal: now.DiskMax,
	}}, nil
}

func historyMetrics(box *history.Sandbox, samples []history.Sample) []e2b.Metric {
	l := box.Limits
	out := make([]e2b.Metric, 0, len(samples))
	for _, s := range samples {
		out = append(out, e2b.Metric{
			At: s.At, CPUs: max(1, int(l.CPUs)), CPUPercent: s.CPUPercent,
			Memory: s.Memory, MemoryCache: s.Cache, MemoryTotal: l.Memory, DiskUsed: s.Disk, DiskTotal: l.Disk,
		})
	}
	return out
}

// endedMetrics returns the usage over time of a sandbox that has been removed, and its tenant.
func (m *meter) endedMetrics(id string) (tenant string, all []e2b.Metric) {
	box, samples := m.history.Sandbox(id)
	if box == nil {
		return "", nil
	}
	return box.Tenant, historyMetrics(box, samples)
}

// newMeter returns a meter that records the sandboxes of E2B's clients.
func newMeter(e *engine.Engine, store brig.Store) *meter {
	return &meter{engine: e, history: history.New(history.Options{
		Live: e.Live, Measure: e.Measure,
		Describe: func(ctx context.Context, id string) (*history.Sandbox, error) {
			tenant, err := store.Owner(ctx, brig.ID(id))
			if err != nil {
				return nil, err
			}
			rec, err := store.Get(ctx, tenant, id)
			if err != nil || !e2b.IsSandbox(&rec.Sandbox) {
				return nil, err
			}
			return &history.Sandbox{Tenant: tenant, Limits: rec.Spec.Limits}, nil
		},
	})}
}
