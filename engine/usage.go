package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

const (
	// usageEvery is how often what was used is written down: as much as that
	// is forgotten when a server is killed.
	usageEvery = 3 * time.Second
	// keepUsage is for how many days usage is kept, maxUsageDays how many may
	// be asked for at once.
	keepUsage    = 400
	maxUsageDays = 400
)

// countUsage writes what was used until the engine ends.
func (e *Engine) countUsage() {
	e.every(usageEvery, func() {
		if err := e.flushUsage(e.ctx); err != nil && e.ctx.Err() == nil {
			e.Log.Error("write what was used; it is tried again", "err", err)
		}
	})
}

// flushUsage writes what was used until now, and when keys were.
func (e *Engine) flushUsage(ctx context.Context) error {
	e.countWays()
	e.flushing.Lock()
	defer e.flushing.Unlock()
	var lines []brig.UsageLine
	back := map[*account][]brig.UsageLine{}
	e.accounts.Range(func(_, v any) bool {
		a := v.(*account)
		back[a] = a.flush()
		lines = append(lines, back[a]...)
		return true
	})
	e.mu.Lock()
	used := e.usedKeys
	e.usedKeys = map[string]time.Time{}
	e.mu.Unlock()
	var errs []error
	if len(lines) > 0 {
		if err := e.Store.Soon().AddUsage(ctx, lines); err != nil {
			errs = append(errs, err)
			for a, lines := range back {
				a.restore(lines)
			}
		}
	}
	if len(used) > 0 {
		errs = append(errs, e.Store.Soon().TouchKeys(ctx, used))
		e.mu.Lock()
		maps.Copy(e.touched, used)
		e.mu.Unlock()
	}
	return errors.Join(append(errs, e.flushSessions(ctx))...)
}

// TenantUsage implements brig.Service.
func (e *Engine) TenantUsage(ctx context.Context, q brig.UsageQuery) (_ []brig.UsageLine, err error) {
	v, err := e.enter(ctx, brig.OpTenantUsage, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if q.Tenant, err = e.ofTenant(ctx, v, q.Tenant); err != nil {
		return nil, err
	}
	if err := e.checkDays(&q); err != nil {
		return nil, err
	}
	if err := e.flushUsage(ctx); err != nil {
		return nil, err
	}
	lines, err := e.Store.Usage(ctx, q.Tenant, q.From, q.To)
	if err != nil {
		return nil, err
	}
	var out []brig.UsageLine
	for _, l := range lines {
		if l.Label == q.Label {
			out = append(out, l)
		}
	}
	if q.Label != "" || q.To < brig.DayOf(e.Now()) {
		return out, nil
	}
	return e.tellStored(ctx, q.Tenant, out)
}

// tellStored adds to the lines of today what tenants' workspaces take now.
func (e *Engine) tellStored(ctx context.Context, tenant string, lines []brig.UsageLine) ([]brig.UsageLine, error) {
	if e.Options.Workspaces == nil {
		return lines, nil
	}
	tenants := []string{tenant}
	if tenant == brig.AllTenants {
		all, err := e.Store.Tenants(ctx)
		if err != nil {
			return nil, err
		}
		tenants = nil
		for _, t := range all {
			tenants = append(tenants, t.Name)
		}
	}
	today := brig.DayOf(e.Now())
	for _, name := range tenants {
		stored, err := e.Options.Workspaces.Stored(ctx, name)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil { // what was used is known all the same
			e.Log.WarnContext(ctx, "count what workspaces take", "tenant", name, "err", err)
			continue
		}
		at := slices.IndexFunc(lines, func(l brig.UsageLine) bool { return l.Tenant == name && l.Day == today })
		if at < 0 && stored > 0 {
			at, lines = len(lines), append(lines, brig.UsageLine{Tenant: name, Day: today})
		}
		if at >= 0 {
			lines[at].Stored = stored
		}
	}
	return lines, nil
}

// checkDays fills in the days of a query.
func (e *Engine) checkDays(q *brig.UsageQuery) error {
	today := brig.DayOf(e.Now())
	for _, f := range []struct {
		name string
		day  *string
	}{{"from", &q.From}, {"to", &q.To}} {
		if *f.day == "" {
			*f.day = today
		}
		if _, err := time.Parse(time.DateOnly, *f.day); err != nil {
			return brig.InvalidField(f.name, "%q is not a day", clip(*f.day)).WithHint("write it as %s", today)
		}
	}
	from, _ := time.Parse(time.DateOnly, q.From) // parsed before
	to, _ := time.Parse(time.DateOnly, q.To)
	if days := to.Sub(from).Hours() / 24; days < 0 || days > maxUsageDays {
		return brig.InvalidField("from", "%s to %s is not a time that can be asked for", q.From, q.To).
			WithHint("give up to %d days, the first one first", maxUsageDays)
	}
	return nil
}

// CountEgress counts what a sandbox has sent and received beyond itself. An
// error of kind RateLimited says that its tenant may not have more today.
func (e *Engine) CountEgress(id brig.ID, bytes int64) error {
	e.mu.Lock()
	p := e.seats[id]
	e.mu.Unlock()
	if p == nil {
		return brig.Errorf(brig.FailedPrecondition, "the sandbox has ended")
	}
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	a.add(p.labels, brig.Spent{Egress: bytes})
	if q := a.tenant.Quota; q.EgressPerDay > 0 && a.spent.Egress > q.EgressPerDay {
		return brig.OverQuota("egress_bytes_per_day", brig.FormatBytes(q.EgressPerDay), brig.UntilTomorrow(a.now()))
	}
	return nil
}
