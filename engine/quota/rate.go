package quota

import (
	"time"

	"github.com/brig-run/brig"
)

// burst is the idle time after which a caller may make the largest number of
// calls at a time.
const burst = 2 * time.Second

// maxBuckets bounds the number of callers per tenant whose calls are counted.
const maxBuckets = 10_000

// bucket holds the number of calls that are allowed now.
type bucket struct {
	tokens float64
	at     time.Time
}

// Allow counts a call of an actor, or returns an error with the time after which the next
// call is allowed.
func (a *Account) Allow(actor brig.Actor) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.tenant.Quota
	if q.Rate == 0 && q.RatePerKey == 0 {
		return nil
	}
	now := a.now()
	whole := Caller{}
	if actor.Visitor {
		whole = visitors // anyone can be one, and must not use up the calls of the tenant's keys
	}
	all, one := a.bucket(whole, q.Rate, now), (*bucket)(nil)
	if who := CallerOf(actor); who.Limited {
		one = a.bucket(who, q.RatePerKey, now)
	}
	// A call that one bucket rejects takes no token from the other.
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

// bucket returns a bucket, refilled up to now, or nil if the rate is unlimited.
func (a *Account) bucket(who Caller, rate float64, now time.Time) *bucket {
	if rate == 0 {
		return nil
	}
	most := max(1, rate*burst.Seconds())
	b := a.buckets[who]
	if b == nil {
		if len(a.buckets) >= maxBuckets {
			clear(a.buckets)
		}
		b = &bucket{tokens: most, at: now}
		a.buckets[who] = b
	}
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(most, b.tokens+d.Seconds()*rate)
	}
	b.at = now
	return b
}

// Caller identifies whose calls are counted together.
type Caller struct {
	Tenant, Holder string
	Limited        bool // the limits of a single key apply: it is a key or a person
}

// CallerOf returns the caller of an actor.
func CallerOf(a brig.Actor) Caller {
	return Caller{a.Tenant, a.Holder(), a.Key != "" || a.Person != nil}
}

// visitors counts the calls of a tenant's visitors, who have no credential, in
// Account.buckets. It is not a caller whose calls are counted there.
var visitors = Caller{Holder: "visitors"}
