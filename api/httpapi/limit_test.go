package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// Each address has its own rate, and a limit for 100,000 addresses uses no more
// memory than a limit for 10,000.
func TestLimit(t *testing.T) {
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
		if n := httpapi.Limited(l); n > 10_000 {
			t.Errorf("%d addresses are remembered", n)
		}
	})
}
