package observe

import (
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// latestValues keeps the last value of each provider and region for a limited
// time, so that a provider without calls does not remain at its rate limit.
type latestValues struct {
	lifetime time.Duration // the time for which a value remains valid

	mu     sync.Mutex // guards the field below
	values map[providerRegion]timedValue
}

type providerRegion struct{ provider, region string }

type timedValue struct {
	value float64
	since time.Time
}

func (b *latestValues) set(provider, region string, v float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.values == nil {
		b.values = map[providerRegion]timedValue{}
	}
	b.values[providerRegion{provider, region}] = timedValue{v, now}
}

// samples returns the values that are still valid.
func (b *latestValues) samples(now time.Time) (out []brig.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, w := range b.values {
		if now.Sub(w.since) > b.lifetime {
			continue
		}
		s := brig.Sample{Labels: map[string]string{"provider": p.provider}, Value: w.value, Count: 1}
		if p.region != "" {
			s.Labels["region"] = p.region
		}
		out = append(out, s)
	}
	return out
}

// Up returns 1 for each provider whose last trial succeeded, and 0 otherwise.
// For a provider without trials, it returns whether the provider responds.
func (m *Metrics) Up(time.Duration) []brig.Sample {
	now := m.now()
	return append(m.upStates.samples(now), m.answers.samples(now)...)
}

// RateLimit returns the used share of each provider's rate limit.
func (m *Metrics) RateLimit(time.Duration) []brig.Sample { return m.rateLimits.samples(m.now()) }
