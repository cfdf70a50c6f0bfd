package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// Each address has its own rate, and a limit with 100,000 addresses uses no more memory than
// one with 10,000.
func TestEachAddressHasOwnRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := httpapi.NewLimit(2, 5)
		take := func(addr string) error {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = addr
			return l.Reserve(r)
		}
		for i := range 5 {
			if err := take("192.0.2.1:1"); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		err := take("192.0.2.1:2")
		e := brig.AsError(err)
		if brig.KindOf(err) != brig.RateLimited || e.RetryAfter <= 0 || e.RetryAfter > time.Second/2 {
			t.Errorf("the sixth: %v, wait %v", err, e.RetryAfter)
		}
		if err := take("192.0.2.2:1"); err != nil {
			t.Errorf("another address: %v", err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "192.0.2.1:3"
		if err := l.Check(r); brig.KindOf(err) != brig.RateLimited {
			t.Errorf("a check: %v", err)
		}
		time.Sleep(e.RetryAfter)
		if err := l.Check(r); err != nil {
			t.Errorf("a check after the wait: %v", err)
		}
		if err := take("192.0.2.1:1"); err != nil {
			t.Errorf("after the wait: %v", err)
		}
		for i := range 100_000 {
			_ = take(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
		}
		if n := httpapi.CountLimited(l); n > 10_000 {
			t.Errorf("%d addresses are remembered", n)
		}
	})
}

// A SecondChance serves one request at a time, for at most a tenth of the time. At most 16 requests
// of an address wait, and only for a limited time. Requests of another address get their turn.
func TestSecondChanceLimitsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := httpapi.NewSecondChance(10 * time.Second)
		request := func(addr string) *http.Request {
			r := httptest.NewRequest("GET", "/", nil).WithContext(t.Context())
			r.RemoteAddr = addr
			return r
		}
		var all sync.WaitGroup
		var working, maximum, done, refused atomic.Int32
		begin := time.Now()
		work := func() {
			turn, ok := s.Begin(request("192.0.2.1:1"))
			if !ok {
				refused.Add(1)
				return
			}
			maximum.Store(max(maximum.Load(), working.Add(1)))
			time.Sleep(100 * time.Millisecond)
			working.Add(-1)
			done.Add(1)
			turn.End()
		}
		all.Go(work)
		synctest.Wait() // the request has its turn and no longer waits
		for range 99 {
			all.Go(work)
		}
		synctest.Wait()
		if n := refused.Load(); n != 99-16 {
			t.Errorf("%d of 99 do not wait", n)
		}
		other := make(chan bool)
		go func() {
			turn, ok := s.Begin(request("192.0.2.2:1"))
			if ok {
				turn.End()
			}
			other <- ok
		}()
		all.Wait()
		if n := done.Load(); maximum.Load() != 1 || n < 9 || n > 11 || time.Since(begin) > 11*time.Second {
			t.Errorf("%d at a time, %d in %v", maximum.Load(), n, time.Since(begin))
		}
		// The other address gets its turn after the requests that waited before, if it does not
		// time out.
		<-other
		time.Sleep(time.Minute)
		turn, ok := s.Begin(request("192.0.2.1:1"))
		if !ok {
			t.Fatal("after a while the address gets no turn")
		}
		turn.End()
	})
}

// TestSecondChanceRestDependsOnWork verifies that the rest after a turn depends only on the time of the
// work, not on the time that the request spent waiting, and that the rest is bounded.
func TestSecondChanceRestDependsOnWork(t *testing.T) {
	for name, c := range map[string]struct {
		work, wait, rest time.Duration
		abandon          bool // the turn ends while the request waits
	}{
		"work":                  {work: 100 * time.Millisecond, rest: 900 * time.Millisecond},
		"work, and a long wait": {work: 100 * time.Millisecond, wait: time.Minute, rest: 900 * time.Millisecond},
		"an abandoned wait":     {work: 100 * time.Millisecond, wait: time.Minute, rest: 450 * time.Millisecond, abandon: true},
		"long work":             {work: 5 * time.Second, rest: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := httpapi.NewSecondChance(10 * time.Second)
				r := httptest.NewRequest("GET", "/", nil).WithContext(t.Context())
				turn, ok := s.Begin(r)
				if !ok {
					t.Fatal("the first request gets no turn")
				}
				time.Sleep(c.work / 2)
				resume := turn.Wait()
				time.Sleep(c.wait)
				if !c.abandon {
					resume()
					time.Sleep(c.work / 2)
				}
				turn.End()
				turn.End() // does nothing
				ended := time.Now()
				if turn, ok = s.Begin(r); !ok {
					t.Fatal("the next request gets no turn")
				}
				if rest := time.Since(ended); rest != c.rest {
					t.Errorf("it rests for %v, want %v", rest, c.rest)
				}
				turn.End()
			})
		})
	}
}
