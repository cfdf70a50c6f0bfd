// Package capacity limits how many sandboxes a server creates at the same time, and rejects callers
// whose creation could not begin in time.
package capacity

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Options limits the number of sandboxes that are created concurrently. More creations than the
// CPUs can handle would only delay each other.
type Options struct {
	// MaxCreating is the number of sandboxes that are created concurrently. Default: 2 per
	// CPU. Tenants without a running creation may exceed the number by up to half, so that a
	// tenant with slow creations does not delay others.
	MaxCreating int
	// MaxQueued is the maximum number of callers that wait for a creation, and
	// MaxTenantQueued is the maximum number per tenant. Default: 1000 and 250.
	MaxQueued, MaxTenantQueued int
	// MaxWait is how long a caller may wait. A creation that is estimated to
	// begin later is rejected immediately. Default: 30 s, which suits a single
	// user. A server for many users sets ServerMaxWait.
	MaxWait time.Duration
	// CheckRoom, if set, returns an error if the server has no capacity for
	// another sandbox.
	CheckRoom func() error
}

// ServerMaxWait is how long a call to a server may wait until its sandbox is
// created, unless the operator configures another time.
const ServerMaxWait = 2 * time.Second

const (
	// initialCreateTime is the estimated duration of a creation before the first one
	// has completed.
	initialCreateTime = 250 * time.Millisecond
	// createTimeWeight is the weight of the last creation in the moving average.
	createTimeWeight = 0.1
	// createTimeSamples is the number of recorded recent creations, and slowQuantile the quantile
	// of their durations that counts as the duration of a slow creation.
	createTimeSamples = 50
	slowQuantile      = 0.9
	// maxRetryAfter is the maximum RetryAfter of a rejected caller.
	maxRetryAfter = 20 * time.Second
	// Field is the error field of a rejection. It lets clients
	// recognize that the call had no effect and can be retried.
	Field = "capacity"
)

// ErrShed is joined to the error of a call that is rejected because the server
// is overloaded. The engine does no work for such a call and writes no audit
// events, so that frequent calls of one client do not fill the log.
var ErrShed = errors.New("the server is at its capacity")

// Limiter admits callers that need a new sandbox. It admits as many at a time
// as there are slots, round-robin over the waiting tenants.
type Limiter struct {
	options Options

	mu           sync.Mutex // guards the fields below
	holders      map[*holder]bool
	queues       map[string]*queue
	rotation     []*queue // queues of waiting tenants, in round-robin order
	waiting      int
	mean         time.Duration   // average duration of a creation
	recent       []time.Duration // durations of the last creations; the oldest is at next
	next         int
	slowDuration time.Duration // the quantile slowQuantile of recent
}

// holder is a caller that has a slot and creates a sandbox.
type holder struct {
	tenant string
	since  time.Time
}

// queue holds the waiting callers of one tenant.
type queue struct {
	tenant  string
	waiters []*waiter
	// rejected is the estimated number of rejected callers that have yet to retry, as of
	// rejectedAt. The next rejected caller receives a RetryAfter that places it behind these
	// callers.
	rejected   float64
	rejectedAt time.Time
}

// waiter waits for a slot.
type waiter struct {
	maxWait  time.Duration // how long it may wait
	admitted chan struct{} // closed when the waiter has a slot
	slot     *holder       // set before admitted is closed
}

// New returns a limiter that no caller uses yet.
func New(o Options) *Limiter {
	if o.MaxCreating == 0 {
		o.MaxCreating = 2 * runtime.NumCPU()
	}
	if o.MaxQueued == 0 {
		o.MaxQueued = 1000
	}
	if o.MaxTenantQueued == 0 {
		o.MaxTenantQueued = 250
	}
	if o.MaxWait == 0 {
		o.MaxWait = 30 * time.Second
	}
	return &Limiter{options: o, holders: map[*holder]bool{}, queues: map[string]*queue{}, mean: initialCreateTime, slowDuration: initialCreateTime}
}

// Acquire waits until a sandbox may be created for a tenant. The wait counts
// from since, the arrival of the call. The caller calls release when the
// creation has ended; further calls of release do nothing.
func (c *Limiter) Acquire(ctx context.Context, tenant string, since time.Time) (release func(), err error) {
	if err := c.CheckRoom(); err != nil {
		return nil, err
	}
	w, err := c.join(tenant, since)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(w.maxWait)
	defer timer.Stop()
	select {
	case <-w.admitted:
		return c.releaser(w.slot), nil
	case <-timer.C:
		err = brig.Errorf(brig.RateLimited, "no sandbox could be created within %v", c.options.MaxWait)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return c.abandon(tenant, w, err)
}

// join takes a slot, or a place in the tenant's queue if the queue is short
// enough.
func (c *Limiter) join(tenant string, since time.Time) (*waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &waiter{admitted: make(chan struct{})}
	if c.hasSlot(tenant) {
		if l := c.queues[tenant]; l != nil {
			l.rejected = 0 // the rejected callers have not returned
		}
		c.grant(w, tenant)
		return w, nil
	}
	now := time.Now()
	l := c.queueOf(tenant, now)
	w.maxWait = c.maxQueueTime(now) - now.Sub(since)
	if err := c.checkQueue(l, w.maxWait, now); err != nil {
		return nil, err
	}
	if len(l.waiters) == 0 {
		c.rotation = append(c.rotation, l)
	}
	l.waiters = append(l.waiters, w)
	c.waiting++
	return w, nil
}

// CheckAdmission rejects a newly arrived call of a tenant if its creation could
// not begin in time. It takes neither a slot nor a place in a queue.
func (c *Limiter) CheckAdmission(tenant string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasSlot(tenant) {
		return nil
	}
	now := time.Now()
	return c.checkQueue(c.queueOf(tenant, now), c.maxQueueTime(now), now)
}

// hasSlot reports whether the next call of a tenant gets a slot immediately. The caller holds
// c.mu.
func (c *Limiter) hasSlot(tenant string) bool {
	l := c.queues[tenant]
	return (l == nil || len(l.waiters) == 0) && c.canStart(tenant)
}

// queueOf returns the queue of a tenant. The caller holds c.mu.
func (c *Limiter) queueOf(tenant string, now time.Time) *queue {
	l := c.queues[tenant]
	if l == nil {
		l = &queue{tenant: tenant, rejectedAt: now}
		c.queues[tenant] = l
	}
	return l
}

// checkQueue rejects a call if the queues are full or if the call would wait for longer than limit.
// The caller holds c.mu.
func (c *Limiter) checkQueue(l *queue, limit time.Duration, now time.Time) error {
	if c.waiting < c.options.MaxQueued && len(l.waiters) < c.options.MaxTenantQueued && c.estimateStart(l, 0, now) <= limit {
		return nil
	}
	return c.reject(l, now, brig.Errorf(brig.RateLimited, "too many sandboxes are being created"))
}

// abandon removes the waiter from its queue, unless it got a slot at the same
// moment.
func (c *Limiter) abandon(tenant string, w *waiter, cause error) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.slot != nil {
		return c.releaser(w.slot), nil
	}
	l := c.queues[tenant]
	for i, other := range l.waiters {
		if other == w {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			c.waiting--
			break
		}
	}
	if len(l.waiters) == 0 {
		c.removeQueue(l)
	}
	if apiErr := brig.AsError(cause); apiErr.Kind == brig.RateLimited {
		return nil, c.reject(l, time.Now(), apiErr)
	}
	return nil, cause
}

// removeQueue removes a queue without waiters from the rotation.
func (c *Limiter) removeQueue(l *queue) {
	for i, other := range c.rotation {
		if other == l {
			c.rotation = append(c.rotation[:i], c.rotation[i+1:]...)
			return
		}
	}
}

// reject rejects a caller. RetryAfter is the estimated time after which the server could serve a
// new request within MaxWait, behind the tenant's waiting and earlier rejected callers. The caller
// holds c.mu.
func (c *Limiter) reject(l *queue, now time.Time, e *brig.Error) error {
	if pace := c.startInterval(now) * time.Duration(max(1, len(c.rotation))); pace > 0 {
		l.rejected = max(0, l.rejected-now.Sub(l.rejectedAt).Seconds()/pace.Seconds())
	}
	l.rejectedAt = now
	retry := c.estimateStart(l, int(l.rejected), now) - c.maxQueueTime(now)
	if retry < maxRetryAfter {
		l.rejected++
	}
	e.Field, e.RetryAfter = Field, min(max(retry, time.Second), maxRetryAfter)
	return errors.Join(e.WithHint("try again in %v, or have the operator give the server more processors", e.RetryAfter.Round(time.Second)), ErrShed)
}

// maxQueueTime returns the part of MaxWait that a caller may spend in the queue. The rest is for
// the creation itself. The duration of the creation is estimated as a high quantile, because half
// of the creations take longer than the average. The caller holds c.mu.
func (c *Limiter) maxQueueTime(now time.Time) time.Duration {
	takes := max(c.slowDuration, c.startInterval(now)*time.Duration(c.options.MaxCreating))
	return max(c.options.MaxWait-takes, c.options.MaxWait/2)
}

// estimateStart estimates how long the next caller in a tenant's queue waits for a slot. before is
// the number of further callers of the tenant that precede this caller. The caller holds c.mu.
func (c *Limiter) estimateStart(l *queue, before int, now time.Time) time.Duration {
	own := len(l.waiters) + before
	place := own + 1
	for _, other := range c.rotation {
		if other != l {
			place += min(len(other.waiters), own+1)
		}
	}
	return time.Duration(place) * c.startInterval(now)
}

// startInterval returns the expected time between the starts of two creations.
// If the running creations already take longer than the average, it uses their
// mean age. The caller holds c.mu.
func (c *Limiter) startInterval(now time.Time) time.Duration {
	var ages time.Duration
	for h := range c.holders {
		ages += now.Sub(h.since)
	}
	takes := c.mean
	if n := len(c.holders); n > 0 {
		takes = max(takes, ages/time.Duration(n))
	}
	return takes / time.Duration(c.options.MaxCreating)
}

// canStart reports whether a sandbox of a tenant may be created now. Waiters
// that may start have precedence, so the caller must have admitted them before.
// The caller holds c.mu.
func (c *Limiter) canStart(tenant string) bool {
	if len(c.holders) < c.options.MaxCreating {
		return true
	}
	for h := range c.holders {
		if h.tenant == tenant {
			return false
		}
	}
	return len(c.holders) < c.options.MaxCreating+(c.options.MaxCreating+1)/2
}

// grant gives a waiter a slot. The caller holds c.mu.
func (c *Limiter) grant(w *waiter, tenant string) {
	w.slot = &holder{tenant: tenant, since: time.Now()}
	c.holders[w.slot] = true
	close(w.admitted)
}

// releaser returns a function that releases a slot, once, and admits the next
// waiters.
func (c *Limiter) releaser(h *holder) func() {
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.holders[h] {
			return
		}
		delete(c.holders, h)
		c.recordDuration(time.Since(h.since))
		c.admit()
		if len(c.rotation) == 0 {
			c.pruneQueues()
		}
	}
}

// recordDuration records the duration of a creation. The caller holds c.mu.
func (c *Limiter) recordDuration(d time.Duration) {
	c.mean += time.Duration(createTimeWeight * float64(d-c.mean))
	if len(c.recent) < createTimeSamples {
		c.recent = append(c.recent, d)
	} else {
		c.recent[c.next] = d
		c.next = (c.next + 1) % createTimeSamples
	}
	sorted := slices.Sorted(slices.Values(c.recent))
	c.slowDuration = sorted[int(slowQuantile*float64(len(sorted)-1))]
}

// admit grants slots to eligible waiters, round-robin. The caller holds c.mu.
func (c *Limiter) admit() {
	for {
		next := slices.IndexFunc(c.rotation, func(l *queue) bool { return c.canStart(l.tenant) })
		if next < 0 {
			return
		}
		l := c.rotation[next]
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		c.waiting--
		if c.rotation = slices.Delete(c.rotation, next, next+1); len(l.waiters) > 0 {
			c.rotation = append(c.rotation, l)
		}
		c.grant(w, l.tenant)
	}
}

// pruneQueues drops empty queues that have rejected no caller for a while, so
// that the queues of former tenants do not accumulate. The caller holds c.mu.
func (c *Limiter) pruneQueues() {
	for name, l := range c.queues {
		if len(l.waiters) == 0 && time.Since(l.rejectedAt) > maxRetryAfter {
			delete(c.queues, name)
		}
	}
}

// CheckRoom returns an error if the server has no capacity for another sandbox.
func (c *Limiter) CheckRoom() error {
	if c.options.CheckRoom == nil {
		return nil
	}
	return c.options.CheckRoom()
}

// Load returns the number of running creations and the number of waiting
// callers.
func (c *Limiter) Load() (making, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holders), c.waiting
}

// HasWaiters reports whether callers wait. Background creations for the pool
// must not compete with them.
func (c *Limiter) HasWaiters() bool {
	_, waiting := c.Load()
	return waiting > 0
}
