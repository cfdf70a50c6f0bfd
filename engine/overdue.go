package engine

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

const (
	// overdueEvery is how often is looked whether a tenant has used up a day's
	// time: by as much, times what goes on, a quota may be exceeded.
	overdueEvery = 250 * time.Millisecond
	// overdueGrace is how long programs of a sandbox have to end by themselves.
	overdueGrace = time.Second
)

// endOverdue ends what goes on of tenants that have used up a quota of time,
// until the engine ends. To bound each execution when it begins would not do:
// those that go on beside each other use up the same time.
func (e *Engine) endOverdue() {
	e.every(overdueEvery, func() {
		e.accounts.Range(func(_, v any) bool {
			a := v.(*account)
			if a.endOverdue() {
				e.endLives(a)
			}
			return true
		})
	})
}

// endOverdue ends the executions of a tenant that has used up its time, and
// reports whether its sandboxes have to end, too.
func (a *account) endOverdue() (all bool) {
	a.mu.Lock()
	var stops []func(error)
	var why error
	if a.tenant.Quota.OfTime() && len(a.open) > 0 {
		a.turn()
		a.catchUp()
		lives, executions := a.tenant.Quota.Ends(a.spent, a.now())
		if all, why = lives != nil, executions; all {
			why = lives
		}
	}
	if why != nil {
		for p := range a.open {
			if p.exec && p.stop != nil && p.over == nil {
				p.over = why
				stops = append(stops, p.stop)
			}
		}
	}
	a.mu.Unlock()
	for _, stop := range stops {
		stop(why)
	}
	return all
}

// endsBy says how an execution is ended before its time. A nil seat is of what
// is not counted.
func (p *seat) endsBy(stop func(why error)) {
	if p == nil {
		return
	}
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.stop = stop
}

// verdict is how an execution ended: over quota if it was ended for that,
// whatever became of it then.
func (p *seat) verdict(err error) error {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.over != nil {
		return p.over
	}
	return err
}

// endLives ends the sandboxes of a tenant.
func (e *Engine) endLives(a *account) {
	var ids []brig.ID
	e.mu.Lock()
	for id, p := range e.seats {
		if p != nil && p.a == a {
			ids = append(ids, id)
		}
	}
	e.mu.Unlock()
	for _, id := range ids {
		e.endOver(a.tenant.Name, id)
	}
}

// endOver begins to end a sandbox whose tenant has used up its time, once.
// One-shots end with what is executed in them.
func (e *Engine) endOver(tenant string, id brig.ID) {
	e.mu.Lock()
	p := e.seats[id]
	again := p == nil || p.ending
	if !again {
		p.ending = true
	}
	in := e.live[id]
	e.mu.Unlock()
	if again || in == nil {
		return
	}
	e.work.Go(func() {
		rec, err := e.Store.Get(e.ctx, tenant, string(id))
		if err == nil && !rec.Spec.Ephemeral {
			e.finish(rec, in, overdueGrace, brig.OverTime)
		}
		if err != nil && brig.KindOf(err) != brig.NotFound && e.ctx.Err() == nil {
			e.Log.Error("find a sandbox whose tenant has used up its time", "sandbox", id, "err", err)
		}
		e.mu.Lock()
		p.ending = false // if it lives all the same, it is tried again
		e.mu.Unlock()
	})
}

// endProcess ends a process whose tenant has used up its time.
func (e *Engine) endProcess(rec *brig.Record, p *process) {
	e.work.Go(func() {
		ctx, cancel := context.WithTimeout(e.ctx, cleanupTime)
		defer cancel()
		if err := p.Kill(ctx); err != nil && ctx.Err() == nil {
			// What cannot be ended alone ends with its sandbox.
			e.Log.WarnContext(ctx, "end a process whose tenant has used up its time", "sandbox", rec.ID, "err", err)
			e.endOver(rec.Tenant, rec.ID)
		}
	})
}
