package quota

import (
	"time"

	"github.com/brig-run/brig"
)

// burst is the idle time after which a caller has its maximum burst of calls.
const burst = 2 * time.Second

// maxBuckets limits the number of callers per tenant whose calls are counted.
const maxBuckets = 10_000

// bucket is a token bucket; it holds the number of currently allowed calls.
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
		whole = visitors // anyone can be a visitor, so visitors share a bucket of their own
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
	limit := max(1, rate*burst.Seconds())
	b := a.buckets[who]
	if b == nil {
		if len(a.buckets) >= maxBuckets {
			clear(a.buckets)
		}
		b = &bucket{tokens: limit, at: now}
		a.buckets[who] = b
	}
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(limit, b.tokens+d.Seconds()*rate)
	}
	b.at = now
	return b
}

// Caller identifies whose calls are counted together.
type Caller struct {
	Tenant, Holder string
	Limited        bool // the caller is a key or a person, and the limits of a single key apply
}

// CallerOf returns the caller of an actor.
func CallerOf(a brig.Actor) Caller {
	return Caller{a.Tenant, a.Holder(), a.Key != "" || a.Person != nil}
}

// visitors counts the calls of a tenant's visitors, who have no credential, in Account.buckets. It
// does not identify a real caller.
var visitors = Caller{Holder: "visitors"}
