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
	// usageInterval is the interval at which usage is written to the store. A
	// server that is killed loses at most the usage of one interval.
	usageInterval = 3 * time.Second
	// usageRetention is the number of days for which usage is kept.
	// maxUsageDays is the longest range of a query.
	usageRetention = 400
	maxUsageDays   = 400
)

// countUsage writes the usage periodically until the engine closes.
func (d *identity) countUsage() {
	d.runEvery(usageInterval, func() {
		if err := d.flushUsage(d.ctx); err != nil && d.ctx.Err() == nil {
			d.Log.Error("failed to write the usage; retrying", "err", err)
		}
	})
}

// flushUsage writes the usage so far, and the times when keys were last used.
func (d *identity) flushUsage(ctx context.Context) error {
	d.network.countAllEgress()
	d.flushMu.Lock()
	defer d.flushMu.Unlock()
	var lines []brig.UsageLine
	back := map[*account][]brig.UsageLine{}
	d.accounts.Range(func(_, v any) bool {
		a := v.(*account)
		back[a] = a.Flush()
		lines = append(lines, back[a]...)
		return true
	})
	d.mu.Lock()
	used := d.usedKeys
	d.usedKeys = map[string]time.Time{}
	d.mu.Unlock()
	var errs []error
	if len(lines) > 0 {
		if err := d.Store.Soon().AddUsage(ctx, lines); err != nil {
			errs = append(errs, err)
			for a, lines := range back {
				a.Restore(lines)
			}
		}
	}
	if len(used) > 0 {
		errs = append(errs, d.Store.Soon().TouchKeys(ctx, used))
		now := d.Now()
		d.mu.Lock()
		maps.Copy(d.touchedKeys, used)
		maps.DeleteFunc(d.touchedKeys, func(_ string, at time.Time) bool { return now.Sub(at) >= touchInterval })
		d.mu.Unlock()
	}
	return errors.Join(append(errs, d.flushSessions(ctx))...)
}

// TenantUsage implements brig.Service.
func (d *identity) TenantUsage(ctx context.Context, q brig.UsageQuery) ([]brig.UsageLine, error) {
	return do(ctx, d.gate, brig.OpTenantUsage, "", func(v *call) (_ []brig.UsageLine, err error) {
		if q.Tenant, err = d.ofTenant(ctx, v, q.Tenant); err != nil {
			return nil, err
		}
		if err := d.checkDays(&q); err != nil {
			return nil, err
		}
		if err := d.flushUsage(ctx); err != nil {
			return nil, err
		}
		lines, err := d.Store.Usage(ctx, q.Tenant, q.From, q.To)
		if err != nil {
			return nil, err
		}
		var out []brig.UsageLine
		for _, l := range lines {
			if l.Label == q.Label {
				out = append(out, l)
			}
		}
		if q.Label != "" || q.To < brig.DayOf(d.Now()) {
			return out, nil
		}
		return d.addStorage(ctx, q.Tenant, out)
	})
}

// addStorage adds the current size of tenants' workspaces to today's lines.
func (g *gate) addStorage(ctx context.Context, tenant string, lines []brig.UsageLine) ([]brig.UsageLine, error) {
	if g.Options.Workspaces == nil {
		return lines, nil
	}
	tenants := []string{tenant}
	if tenant == brig.AllTenants {
		all, err := g.Store.Tenants(ctx)
		if err != nil {
			return nil, err
		}
		tenants = nil
		for _, t := range all {
			tenants = append(tenants, t.Name)
		}
	}
	today := brig.DayOf(g.Now())
	for _, name := range tenants {
		stored, err := g.Options.Workspaces.Stored(ctx, name)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil { // report the other usage anyway
			g.Log.WarnContext(ctx, "failed to measure the size of workspaces", "tenant", name, "err", err)
			continue
		}
		index := slices.IndexFunc(lines, func(l brig.UsageLine) bool { return l.Tenant == name && l.Day == today })
		if index < 0 && stored > 0 {
			index, lines = len(lines), append(lines, brig.UsageLine{Tenant: name, Day: today})
		}
		if index >= 0 {
			lines[index].Stored = stored
		}
	}
	return lines, nil
}

// checkDays checks the range of days of a query and fills in its defaults.
func (g *gate) checkDays(q *brig.UsageQuery) error {
	today := brig.DayOf(g.Now())
	if q.From == "" && q.To != "" && q.To < today {
		q.From = q.To
	}
	for _, f := range []struct {
		name string
		day  *string
	}{{"from", &q.From}, {"to", &q.To}} {
		if *f.day == "" {
			*f.day = today
		}
		if _, err := time.Parse(time.DateOnly, *f.day); err != nil {
			return brig.InvalidField(f.name, "%q is not a day", truncate(*f.day)).WithHint("write it as %s", today)
		}
	}
	from, _ := time.Parse(time.DateOnly, q.From) // validated above
	to, _ := time.Parse(time.DateOnly, q.To)
	if days := to.Sub(from).Hours() / 24; days < 0 || days > maxUsageDays {
		return brig.InvalidField("from", "%s to %s is not a valid period", q.From, q.To).
			WithHint("give up to %d days, the first one first", maxUsageDays)
	}
	return nil
}
