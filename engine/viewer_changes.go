package engine

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/quota"
)

// A viewer may create grants and sessions, and end sessions. Each such call writes two lines to the
// audit log, even if it fails, so a viewer could displace the lines of other callers by repeated
// calls. Callers with a higher role are not limited, because they can make other calls that write
// lines anyway.
const (
	viewerChangeBurst    = 100
	viewerChangeInterval = time.Second // between two calls of one viewer, after the first ones
	// maxChangingViewers limits the number of viewers that are limited separately. Further viewers
	// of a tenant share one limit.
	maxChangingViewers = 10_000
)

// viewerChanges limits the changing calls of each viewer.
type viewerChanges struct {
	mu sync.Mutex // guards the field below
	by map[quota.Caller]*rate.Limiter
}

// allow counts a call of a, or returns RateLimited.
func (vc *viewerChanges) allow(op brig.Op, a brig.Actor, now time.Time) error {
	if !op.Changes || a.Role != brig.Viewer {
		return nil
	}
	if vc.limiterOf(quota.CallerOf(a), now).AllowN(now, 1) {
		return nil
	}
	e := brig.Errorf(brig.RateLimited, "%s: more than %d changes by one viewer, and one a second after them", op.Name, viewerChangeBurst).
		WithHint("wait, and use a grant or a session until it expires before you create another")
	e.RetryAfter = viewerChangeInterval
	return e
}

// limiterOf returns the limiter of a caller.
func (vc *viewerChanges) limiterOf(caller quota.Caller, now time.Time) *rate.Limiter {
	vc.mu.Lock()
	defer vc.mu.Unlock()
	if vc.by[caller] == nil && len(vc.by) >= maxChangingViewers {
		for other, l := range vc.by {
			if l.TokensAt(now) >= viewerChangeBurst { // equivalent to a new limiter
				delete(vc.by, other)
			}
		}
		if len(vc.by) >= maxChangingViewers {
			caller = quota.Caller{Tenant: caller.Tenant}
		}
	}
	l := vc.by[caller]
	if l == nil {
		l = rate.NewLimiter(rate.Every(viewerChangeInterval), viewerChangeBurst)
		if vc.by == nil {
			vc.by = map[quota.Caller]*rate.Limiter{}
		}
		vc.by[caller] = l
	}
	return l
}
