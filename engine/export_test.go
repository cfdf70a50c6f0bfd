package engine

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/engine/output"
)

// Brokered returns the brokered secrets of a sandbox.
func (e *Engine) Brokered(rec *brig.Record) []egress.Secret {
	return e.network.brokeredSecrets(rec, e.egressOf(rec.ID))
}

// CreateWithRights creates a sandbox as a build of the engine does.
func (e *Engine) CreateWithRights(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	spec.BuildRights = true
	return e.create(ctx, spec)
}

// ReturnToPool returns a claimed instance to the pool, which the pool itself must
// never do.
func (e *Engine) ReturnToPool(id brig.ID, in brig.Instance) {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	for _, s := range e.pool.classes {
		if s.language == "" {
			s.ready = append(s.ready, &pooledInstance{id: id, name: "again", in: in})
		}
	}
}

// TrimAll deletes all records beyond the limits, like the engine's housekeeping.
func (e *Engine) TrimAll(ctx context.Context) error { return e.trimAll(ctx) }

// PruneExpired removes records after their retention, like the engine's
// housekeeping.
func (e *Engine) PruneExpired(ctx context.Context) error { return e.pruneExpired(ctx) }

// Users returns the number of calls that use a sandbox's instance.
func (e *Engine) Users(id brig.ID) int {
	g := e.usesOf(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.users
}

// Waiting returns the number of calls that wait until a sandbox's instance can be
// used.
func (e *Engine) Waiting(id brig.ID) int {
	g := e.usesOf(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// StorageOf returns the storage that counts against a tenant's quota.
func (e *Engine) StorageOf(tenant string) int64 {
	a, err := e.getAccount(e.ctx, tenant)
	if err != nil {
		return -1
	}
	return a.StorageUsed()
}

// MaxSecrets sets the maximum number of secrets of a tenant, until the test
// ends.
func MaxSecrets(t interface{ Cleanup(func()) }, n int) { setMax(t, &maxTenantSecrets, n) }

// MaxRecords sets the maximum numbers of secrets, keys, sessions and tool
// variables, until the test ends.
func MaxRecords(t interface{ Cleanup(func()) }, n int) {
	for _, limit := range []*int{&maxTenantSecrets, &maxKeys, &maxSessions, &maxToolVariables} {
		setMax(t, limit, n)
	}
}

func setMax(t interface{ Cleanup(func()) }, limit *int, n int) {
	previous := *limit
	*limit = n
	t.Cleanup(func() { *limit = previous })
}

// DisableLocks disables the locks that serialize changes of a tenant's records,
// until the test ends.
func DisableLocks(t interface{ Cleanup(func()) }) {
	locksDisabled = true
	t.Cleanup(func() { locksDisabled = false })
}

// EgressQuotaUsedUp reports whether a sandbox's session denies all traffic because
// its tenant's egress quota is exhausted.
func (e *Engine) EgressQuotaUsedUp(id brig.ID) bool {
	w := e.egressOf(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != nil && w.quotaExhausted
}

// SessionUsage returns the bytes that a sandbox's session has sent and received.
func (e *Engine) SessionUsage(id brig.ID) (sent, received int64) { return e.egressOf(id).usage() }

// CloseEgress closes a sandbox's session, like the removal of the sandbox.
func (e *Engine) CloseEgress(id brig.ID) { e.egressOf(id).close() }

// DisableRelays disables the relays, so that an execution waits for the caller that
// receives its output.
func (e *Engine) DisableRelays() { e.relays.Disable() }

// RelayBudget sets the buffer budgets for slow callers, per tenant and for the
// server.
func (e *Engine) RelayBudget(tenant, all int) { e.relays = output.NewRelays(tenant, all) }

// Relayed returns the number of bytes that are buffered for slow callers.
func (e *Engine) Relayed() int { return e.relays.Held() }

// CountRefusals reads the counts of denials of each sandbox's kernel, as the engine
// does each minute.
func (e *Engine) CountRefusals() { e.countRefusals() }

// StopFor ends a sandbox for the given reason, like an end that no caller
// requested.
func (e *Engine) StopFor(ctx context.Context, rec *brig.Record, reason brig.ExitReason) (*brig.Sandbox, error) {
	return e.stopInstance(ctx, rec, 0, reason)
}

// DeleteUnusedVolumes deletes removed volumes that no sandbox uses, like the engine's housekeeping.
func (e *Engine) DeleteUnusedVolumes(ctx context.Context) error { return e.deleteUnused(ctx) }
