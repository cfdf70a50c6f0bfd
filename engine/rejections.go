package engine

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/quota"
)

// A rejected call costs its caller nothing, even above the tenant's rate, so not every rejection
// may produce a line of the audit log. Otherwise, a key without any rights could fill the log and
// displace the lines of other callers. The log has lines for the first rejections of each caller,
// and then the number of further rejections.
const (
	rejectionBurst    = 200
	rejectionInterval = 2 * time.Second // between two lines of one caller, after the burst
	// maxRejectedCallers limits the number of callers that are counted separately. Further callers
	// of a tenant share one count.
	maxRejectedCallers = 10_000
)

// rejections counts the rejected calls of each caller.
type rejections struct {
	mu sync.Mutex // guards the field below
	by map[quota.Caller]*callerRejections
}

// callerRejections counts the rejected calls of one caller.
type callerRejections struct {
	limiter *rate.Limiter
	last    brig.Event // the last rejection without a line
	more    int        // the number of rejections without a line
	at      time.Time
}

// addRejection returns the line for a rejected call. It returns false if the call is only counted.
func (rs *rejections) addRejection(a brig.Actor, ev brig.Event, now time.Time) (brig.Event, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	caller := quota.CallerOf(a)
	if rs.by[caller] == nil && len(rs.by) >= maxRejectedCallers {
		caller = quota.Caller{Tenant: a.Tenant}
	}
	r := rs.by[caller]
	if r == nil {
		r = &callerRejections{limiter: rate.NewLimiter(rate.Every(rejectionInterval), rejectionBurst)}
		if rs.by == nil {
			rs.by = map[quota.Caller]*callerRejections{}
		}
		rs.by[caller] = r
	}
	r.at = now
	if !r.limiter.AllowN(now, 1) {
		r.last, r.more = ev, r.more+1
		return ev, false
	}
	return r.takeCount(ev), true
}

// takeCount adds the number of calls without a line to an event.
func (r *callerRejections) takeCount(ev brig.Event) brig.Event {
	if r.more > 0 {
		ev.Detail = maps.Clone(ev.Detail)
		if ev.Detail == nil {
			ev.Detail = map[string]string{}
		}
		ev.Detail[brig.DetailCount] = strconv.Itoa(r.more)
		r.more, r.last = 0, brig.Event{}
	}
	return ev
}

// takeCounts returns lines with the numbers of calls that have no own line, and drops callers
// without recent rejections.
func (rs *rejections) takeCounts(now time.Time) (lines []brig.Event) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for who, r := range rs.by {
		if r.more > 0 {
			lines = append(lines, r.takeCount(r.last))
		}
		if now.Sub(r.at) > rejectionBurst*rejectionInterval {
			delete(rs.by, who)
		}
	}
	return lines
}

// writeRejections writes the numbers of rejected calls without a line.
func (g *gate) writeRejections(ctx context.Context) {
	lines := g.rejections.takeCounts(g.Now())
	if len(lines) == 0 {
		return
	}
	if err := g.Store.Soon().Append(context.WithoutCancel(ctx), lines...); err != nil {
		g.Log.ErrorContext(ctx, "failed to write the numbers of rejected calls", "callers", len(lines), "err", err)
	}
}
