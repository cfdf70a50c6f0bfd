package engine

import (
	"time"

	"github.com/brig-run/brig"
)

// burst is for how long nothing may have been asked for the most to come at
// once.
const burst = 2 * time.Second

// maxBuckets bounds the keys of a tenant that calls are counted of.
const maxBuckets = 10_000

// bucket holds the calls that may be made now.
type bucket struct {
	tokens float64
	at     time.Time
}

// allow counts a call, or says after how long there may be another one.
func (a *account) allow(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.tenant.Quota
	if q.Rate == 0 && q.RatePerKey == 0 {
		return nil
	}
	now := a.now()
	all, one := a.bucket("", q.Rate, now), (*bucket)(nil)
	if key != "" {
		one = a.bucket(key, q.RatePerKey, now)
	}
	// A call that one of them refuses costs nothing of the other.
	for _, b := range []struct {
		*bucket
		field string
		rate  float64
	}{{all, "rate", q.Rate}, {one, "rate_per_key", q.RatePerKey}} {
		if b.bucket != nil && b.tokens < 1 {
			e := brig.Errorf(brig.RateLimited, "more than %g calls a second", b.rate).
				WithHint("wait, or ask the operator for a larger quota.%s", b.field)
			e.Field, e.RetryAfter = "quota."+b.field, time.Duration((1-b.tokens)/b.rate*float64(time.Second))
			return e
		}
	}
	for _, b := range []*bucket{all, one} {
		if b != nil {
			b.tokens--
		}
	}
	return nil
}

// bucket returns one, filled up to now; nil where there is no bound.
func (a *account) bucket(name string, rate float64, now time.Time) *bucket {
	if rate == 0 {
		return nil
	}
	most := max(1, rate*burst.Seconds())
	b := a.buckets[name]
	if b == nil {
		if len(a.buckets) >= maxBuckets {
			clear(a.buckets)
		}
		b = &bucket{tokens: most, at: now}
		a.buckets[name] = b
	}
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(most, b.tokens+d.Seconds()*rate)
	}
	b.at = now
	return b
}
