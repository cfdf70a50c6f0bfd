package image

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Limits of concurrent pulls: running pulls, queued pulls and the duration of
// one pull. The time limit keeps a slow registry from blocking all other pulls.
// Pulls of missing images, which tenants cause, leave a slot for those of
// operators and have a queue of their own. One tenant has half of the slots and of
// that queue, and a tenant with many pulls leaves the last quarter to others.
const (
	maxConcurrentPulls = 4
	maxQueuedPulls     = 32
	maxPulls           = maxConcurrentPulls + maxQueuedPulls
	maxMissingPulls    = maxConcurrentPulls - 1
	longest            = 2 * time.Hour
)

// flights tracks the pulls in progress. Identical requests share one pull.
type flights struct {
	mu     sync.Mutex // guards the fields below and each flight's waiting count
	byKey  map[flightKey]*flight
	slots  chan struct{} // held by pulls that are not queued
	active int           // queued or running
	missed int           // the pulls of missing images among the active ones

	missingSlots chan struct{}           // held by pulls of missing images that are not queued
	tenants      map[string]*tenantPulls // with pulls of missing images
}

// tenantPulls are the pulls of missing images that one tenant has begun.
type tenantPulls struct {
	slots  chan struct{} // held by pulls that are not queued
	active int           // queued or running; guarded by flights.mu
}

// flightKey identifies identical pulls. It includes the credentials, because a
// result is only for a caller that has them.
type flightKey struct {
	pull    brig.ImagePull
	missing bool
}

// flight is one pull with its waiting callers.
type flight struct {
	tenant  *tenantPulls // nil for a pull by an operator's request
	waiting int
	end     context.CancelFunc
	done    chan struct{}
	img     *brig.Image // img and err are set before done is closed
	err     error

	mu        sync.Mutex // held while progress is reported
	listeners map[int]func(brig.Progress)
	next      int
}

// work is the function that a flight runs.
type work func(context.Context, func(brig.Progress)) (*brig.Image, error)

// do runs f once for all concurrent callers with the same key. The work ends
// when it is done or when its last caller leaves. That caller waits until the
// work has stopped.
func (fs *flights) do(ctx context.Context, k flightKey, report func(brig.Progress), f work) (*brig.Image, error) {
	fl, err := fs.join(ctx, k, f)
	if err != nil {
		return nil, err
	}
	stop := fl.listen(report)
	select {
	case <-fl.done:
	case <-ctx.Done():
	}
	stop()
	last := fs.leave(k, fl)
	if ctx.Err() != nil {
		if last {
			<-fl.done
		}
		return nil, context.Cause(ctx)
	}
	if fl.img == nil {
		return nil, fl.err
	}
	img := *fl.img // each caller gets its own copy
	return &img, fl.err
}

func (fs *flights) join(ctx context.Context, k flightKey, f work) (*flight, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fl := fs.byKey[k]; fl != nil {
		fl.waiting++
		return fl, nil
	}
	if fs.slots == nil {
		fs.slots, fs.missingSlots = make(chan struct{}, maxConcurrentPulls), make(chan struct{}, maxMissingPulls)
		fs.tenants = map[string]*tenantPulls{}
	}
	tenant := brig.ActorFrom(ctx).Tenant
	pulls := fs.tenants[tenant]
	if k.missing && pulls != nil && (pulls.active >= maxPulls/2 || fs.missed >= maxPulls*3/4 && pulls.active >= maxConcurrentPulls) {
		return nil, brig.Errorf(brig.RateLimited, "%d images are being pulled or queued for the tenant already", pulls.active).
			WithHint("try again when some of them are there")
	}
	like := fs.active - fs.missed
	if k.missing {
		like = fs.missed
	}
	if like >= maxPulls {
		return nil, brig.Errorf(brig.RateLimited, "%d images are being pulled or queued already", like).
			WithHint("try again when some of them are there")
	}
	fs.active++
	if !k.missing {
		pulls = nil
	} else if pulls == nil {
		pulls = &tenantPulls{slots: make(chan struct{}, maxConcurrentPulls/2)}
		fs.tenants[tenant] = pulls
	}
	if pulls != nil {
		pulls.active++
		fs.missed++
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{tenant: pulls, waiting: 1, end: end, done: make(chan struct{}), listeners: map[int]func(brig.Progress){}}
	if fs.byKey == nil {
		fs.byKey = map[flightKey]*flight{}
	}
	fs.byKey[k] = fl
	go func() {
		defer end()
		fl.img, fl.err = fs.runQueued(ctx, fl, f)
		fs.mu.Lock()
		fs.active--
		if pulls != nil {
			fs.missed--
			if pulls.active--; pulls.active == 0 {
				delete(fs.tenants, tenant)
			}
		}
		if fs.byKey[k] == fl {
			delete(fs.byKey, k)
		}
		fs.mu.Unlock()
		close(fl.done)
	}()
	return fl, nil
}

// runQueued waits for a free slot and then does the work.
func (fs *flights) runQueued(ctx context.Context, fl *flight, f work) (*brig.Image, error) {
	slots := []chan struct{}{fs.slots}
	if fl.tenant != nil {
		slots = []chan struct{}{fl.tenant.slots, fs.missingSlots, fs.slots}
	}
	for _, s := range slots {
		if err := waitForSlot(ctx, fl, s); err != nil {
			return nil, err
		}
		defer func() { <-s }()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, errPullTimeout)
	defer cancel()
	img, err := f(ctx, fl.report)
	if err != nil && errors.Is(context.Cause(ctx), errPullTimeout) {
		err = brig.Errorf(brig.Timeout, "the pull did not end within %v", longest).Because(err)
	}
	return img, err
}

var errPullTimeout = errors.New("the pull took too long")

func waitForSlot(ctx context.Context, fl *flight, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	fl.report(brig.Progress{Step: "wait for other pulls"})
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave removes one waiting caller. If no other caller waits for the work,
// leave ends it and returns true.
func (fs *flights) leave(k flightKey, fl *flight) (last bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fl.waiting--; fl.waiting > 0 {
		return false
	}
	fl.end()
	if fs.byKey[k] == fl {
		delete(fs.byKey, k)
	}
	return true
}

// listen registers report until the caller calls stop.
func (fl *flight) listen(report func(brig.Progress)) (stop func()) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	n := fl.next
	fl.next++
	fl.listeners[n] = report
	return func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		delete(fl.listeners, n)
	}
}

// report reports progress to all waiting callers, one report at a time.
func (fl *flight) report(p brig.Progress) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, report := range fl.listeners {
		report(p)
	}
}
