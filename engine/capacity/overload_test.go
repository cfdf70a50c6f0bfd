package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// load collects the results of one tenant's callers, under a fake clock.
type load struct {
	tenant     string
	every      time.Duration
	calls      int
	mu         sync.Mutex // guards the fields below
	begun      int
	waits      []time.Duration // of admitted calls
	refused    []time.Duration // of rejected calls
	retries    []time.Duration // requested by the errors
	unexpected []error
	finished   []time.Time
}

// drive makes calls at a fixed pace for the given duration. Each admitted call
// keeps its slot for the duration hold.
func (l *load) drive(c *Limiter, duration, hold time.Duration, calls *sync.WaitGroup) {
	for end := time.Now().Add(duration); time.Now().Before(end); time.Sleep(l.every) {
		l.calls++
		calls.Go(func() {
			begin := time.Now()
			release, err := c.Acquire(context.Background(), l.tenant, time.Now())
			waited := time.Since(begin)
			l.mu.Lock()
			apiErr := brig.AsError(err)
			switch {
			case err == nil:
				l.begun++
				l.waits = append(l.waits, waited)
			case apiErr.Kind == brig.RateLimited && apiErr.Field == Field && errors.Is(err, ErrShed):
				l.refused = append(l.refused, waited)
				l.retries = append(l.retries, apiErr.RetryAfter)
			default:
				l.unexpected = append(l.unexpected, err)
			}
			l.mu.Unlock()
			if err == nil {
				time.Sleep(hold)
				release()
				release() // a second call has no effect
				l.mu.Lock()
				l.finished = append(l.finished, time.Now())
				l.mu.Unlock()
			}
		})
	}
}

func longestOf(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Max(d)
}

// Regardless of the number of callers, the limiter uses the full capacity. No
// creation begins later than the maximum wait, and almost all other calls are
// rejected immediately. Two slots with 100 ms per creation yield 20 instances per
// second. The control has no effective time limit.
func TestOverloadIsShed(t *testing.T) {
	const lasts, takes, capable = 30 * time.Second, 100 * time.Millisecond, 20
	for _, times := range []int{1, 3, 10} {
		for _, wait := range []time.Duration{2 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%d times the capacity, wait %v", times, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := New(Options{MaxCreating: 2, MaxWait: wait, MaxTenantQueued: 100_000, MaxQueued: 100_000})
					l := &load{tenant: "acme", every: time.Second / time.Duration(capable*times)}
					var calls sync.WaitGroup
					begin := time.Now()
					l.drive(c, lasts, takes, &calls)
					calls.Wait()
					inTime := 0
					for _, finished := range l.finished {
						if finished.Before(begin.Add(lasts)) {
							inTime++
						}
					}
					if goodput := float64(inTime) / lasts.Seconds(); goodput < 0.95*capable {
						t.Errorf("%.1f machines a second, of %d", goodput, capable)
					}
					if len(l.unexpected) > 0 {
						t.Errorf("refused in another way: %v", l.unexpected)
					}
					late := longestOf(l.waits)
					if control := wait == time.Hour; control {
						if times > 1 && (late < 5*time.Second || len(l.refused) > 0) {
							t.Errorf("the control: the last began after %v, %d were refused", late, len(l.refused))
						}
						return
					}
					if late > wait {
						t.Errorf("one began after %v", late)
					}
					if times == 1 && len(l.refused) > 0 {
						t.Errorf("%d of %d were refused at the capacity", len(l.refused), l.calls)
					}
					atOnce := 0
					for _, d := range l.refused {
						if d == 0 {
							atOnce++
						}
					}
					if atOnce < len(l.refused)*95/100 {
						t.Errorf("of %d that were refused, %d were at once", len(l.refused), atOnce)
					}
					if times > 1 && longestOf(l.retries) <= time.Second {
						t.Errorf("all were told to come back after %v", longestOf(l.retries))
					}
					making, waiting := c.Load()
					if making+waiting > 0 {
						t.Errorf("%d slots are taken and %d wait in the end", making, waiting)
					}
				})
			})
		}
	}
}

// A tenant that requests ten times the capacity does not delay another tenant with
// few requests. If both request more than the capacity, each gets about half of it.
// In the control, both requests are made by the same tenant.
func TestOverloadIsFairAcrossTenants(t *testing.T) {
	const lasts, takes = 30 * time.Second, 100 * time.Millisecond
	for _, c := range []struct {
		name          string
		second        string
		every         time.Duration
		least, most   float64 // of the second's calls that are admitted
		longest, late time.Duration
	}{
		{"one that asks for little", "quiet", 200 * time.Millisecond, 1, 1, 500 * time.Millisecond, 0},
		{"one that asks for all", "busy", 50 * time.Millisecond, 0.45, 0.62, 2 * time.Second, 0},
		{"the control: in the same line", "flood", 200 * time.Millisecond, 0, 0.9, 2 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := New(Options{MaxCreating: 2, MaxWait: ServerMaxWait})
				flood := &load{tenant: "flood", every: 5 * time.Millisecond}
				second := &load{tenant: c.second, every: c.every}
				var calls, drivers sync.WaitGroup
				drivers.Go(func() { flood.drive(all, lasts, takes, &calls) })
				drivers.Go(func() { second.drive(all, lasts, takes, &calls) })
				drivers.Wait()
				calls.Wait()
				if share := float64(second.begun) / float64(second.calls); share < c.least || share > c.most {
					t.Errorf("%d of %d were let in", second.begun, second.calls)
				}
				if d := longestOf(second.waits); d > c.longest || d < c.late {
					t.Errorf("the last began after %v", d)
				}
			})
		})
	}
}

// Callers that retry after RetryAfter are admitted soon, even if many of them were
// rejected at once.
func TestRetryAfterIsHonored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{MaxCreating: 2, MaxWait: ServerMaxWait})
		for range 50 { // train the estimate of the duration of a creation
			release, err := c.Acquire(context.Background(), "acme", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			release()
		}
		again := 0
		var mu sync.Mutex // guards again
		var calls sync.WaitGroup
		for range 200 { // ten seconds of work in one burst
			calls.Go(func() {
				for n := 0; ; n++ {
					release, err := c.Acquire(context.Background(), "acme", time.Now())
					if err == nil {
						time.Sleep(100 * time.Millisecond)
						release()
						return
					}
					mu.Lock()
					again++
					mu.Unlock()
					time.Sleep((brig.AsError(err).RetryAfter + time.Second - 1).Truncate(time.Second)) // rounded as in the header
				}
			})
		}
		begin := time.Now()
		calls.Wait()
		if took := time.Since(begin); again > 600 || took > 20*time.Second {
			t.Errorf("200 at once were through after %v, and were told %d times to come back", took, again)
		}
	})
}

// If the slow creations of one tenant occupy all slots, the calls of a few other
// tenants still begin immediately. The control is another call of the first tenant,
// which has to wait.
func TestSlowCreationsDoNotDelayOtherTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{MaxCreating: 4, MaxWait: ServerMaxWait})
		var slow []func()
		for range 4 {
			release, err := c.Acquire(t.Context(), "acme", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, release)
		}
		waits := func(tenant string) (release func(), waited time.Duration) {
			begin := time.Now()
			release, err := c.Acquire(t.Context(), tenant, time.Now())
			if err != nil {
				return func() {}, time.Since(begin)
			}
			return release, time.Since(begin)
		}
		for range 10 { // one after another, each in the slot reserved for its tenant
			release, waited := waits("rival")
			if making, _ := c.Load(); waited > 0 || making != 5 {
				t.Fatalf("another tenant's call waited %v, %d are made", waited, making)
			}
			release()
		}
		if _, waited := waits("acme"); waited == 0 {
			t.Error("the control: the tenant itself did not wait")
		}
		rival, _ := waits("rival")
		other, waited := waits("other")
		if making, _ := c.Load(); waited > 0 || making != 6 {
			t.Errorf("a third tenant's call waited %v, %d are made", waited, making)
		}
		// The number of additional slots is limited, too. A slot that becomes free
		// is given to a waiting tenant.
		begun := make(chan struct{})
		go func() {
			release, err := c.Acquire(t.Context(), "fourth", time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			close(begun)
			release()
		}()
		synctest.Wait()
		if making, waiting := c.Load(); making != 6 || waiting != 1 {
			t.Errorf("%d are made and %d wait", making, waiting)
		}
		rival()
		<-begun
		for _, release := range append(slow, other) {
			release()
		}
		if making, waiting := c.Load(); making+waiting > 0 {
			t.Errorf("%d slots are taken and %d wait in the end", making, waiting)
		}
	})
}

// Most creations of admitted calls end within the maximum wait, although one in
// five takes seven times as long as the others, because the limiter reserves a high
// quantile of the durations. The control reserves the mean duration, with which
// more than one in twenty creations end too late.
func TestSlowCreationsEndWithinWait(t *testing.T) {
	for _, byMean := range []bool{false, true} {
		t.Run(fmt.Sprintf("by the mean: %v", byMean), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{MaxCreating: 2, MaxWait: ServerMaxWait})
				var mu sync.Mutex // guards the fields below
				begun, late := 0, 0
				var calls sync.WaitGroup
				for range 3000 { // ten times the capacity
					calls.Go(func() {
						begin := time.Now()
						release, err := c.Acquire(t.Context(), "acme", begin)
						if err != nil {
							return
						}
						mu.Lock()
						begun++
						takes := 100 * time.Millisecond
						if begun%5 == 0 {
							takes = 700 * time.Millisecond
						}
						mu.Unlock()
						time.Sleep(takes)
						mu.Lock()
						if time.Since(begin) > c.options.MaxWait {
							late++
						}
						mu.Unlock()
						release()
						if byMean {
							c.mu.Lock()
							c.slowDuration = c.mean
							c.mu.Unlock()
						}
					})
					time.Sleep(11 * time.Millisecond)
				}
				calls.Wait()
				if begun < 270 { // two slots with 220 ms per creation can create 300 in 33 s
					t.Errorf("%d machines were made", begun)
				}
				if byMean != (late*20 > begun) {
					t.Errorf("of %d machines, %d were late", begun, late)
				}
			})
		})
	}
}
