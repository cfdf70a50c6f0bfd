package observe

import (
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// board keeps the last word of each provider and region, for a while: a provider
// that nobody calls any more does not stay at its limit.
type board struct {
	kept time.Duration // how long a word is good for

	mu sync.Mutex // guards the field below
	by map[place]word
}

type place struct{ provider, region string }

type word struct {
	value float64
	at    time.Time
}

func (b *board) set(provider, region string, v float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[place]word{}
	}
	b.by[place{provider, region}] = word{v, now}
}

// samples are the words that are still good.
func (b *board) samples(now time.Time) (out []brig.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, w := range b.by {
		if now.Sub(w.at) > b.kept {
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

// Up is whether the last trial of each provider succeeded: 1 or 0.
func (m *Metrics) Up(time.Duration) []brig.Sample { return m.ups.samples(m.now()) }

// RateLimit is how much of each provider's rate limit is used up.
func (m *Metrics) RateLimit(time.Duration) []brig.Sample { return m.allowances.samples(m.now()) }
