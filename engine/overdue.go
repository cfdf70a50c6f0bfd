package engine

import (
	"time"

	"github.com/brig-run/brig"
)

const (
	// overdueInterval is how often the engine checks whether a tenant has used
	// up a day's time. Each running execution and sandbox may exceed the quota
	// by up to this interval.
	overdueInterval = 250 * time.Millisecond
	// overdueGrace is how long the programs of a sandbox have to exit on their
	// own.
	overdueGrace = time.Second
)

// enforceTimeQuotas ends the executions and sandboxes of tenants that have used up a time quota,
// until the engine ends. Limiting each execution at its start would not suffice, because concurrent
// executions share the quota.
func (l *lifecycle) enforceTimeQuotas() {
	l.runEvery(overdueInterval, func() {
		l.accounts.Range(func(_, v any) bool {
			a := v.(*account)
			if a.StopOverdueExecutions() {
				l.endSandboxes(a)
			}
			return true
		})
	})
}

// endSandboxes ends the sandboxes of a tenant.
func (l *lifecycle) endSandboxes(a *account) {
	var ids []brig.ID
	l.sandboxes.updateEach(func(id brig.ID, s *sandbox) {
		if s.reservation != nil && s.reservation.Account() == a.Account {
			ids = append(ids, id)
		}
	})
	for _, id := range ids {
		l.endOverQuota(a.Tenant().Name, id)
	}
}

// endOverQuota starts to end a sandbox whose tenant has used up its time,
// unless it is already being ended. A one-shot ends with its execution.
func (l *lifecycle) endOverQuota(tenant string, id brig.ID) {
	var in brig.Instance
	l.sandboxes.update(id, func(s *sandbox) {
		if s.reservation != nil && s.instance != nil && !s.endingOverQuota {
			s.endingOverQuota, in = true, s.instance
		}
	})
	if in == nil {
		return
	}
	l.background.Go(func() {
		rec, err := l.Store.Get(l.ctx, tenant, string(id))
		if err == nil && !rec.Spec.Ephemeral {
			l.endSandbox(rec, in, overdueGrace, brig.OverTime)
		}
		if err != nil && brig.KindOf(err) != brig.NotFound && l.ctx.Err() == nil {
			l.Log.Error("failed to find a sandbox of a tenant whose quota is used up", "sandbox", id, "err", err)
		}
		l.sandboxes.update(id, func(s *sandbox) { s.endingOverQuota = false }) // if the sandbox still runs, the next check retries
	})
}

// endProcess ends a process whose tenant has used up its time.
func (l *lifecycle) endProcess(rec *brig.Record, in brig.Instance, p *process) {
	l.background.Go(func() {
		if !l.killProgram(rec, in, p) { // the process cannot be ended without its sandbox
			l.endOverQuota(rec.Tenant, rec.ID)
		}
	})
}
