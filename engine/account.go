package engine

import (
	"context"
	"maps"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/quota"
)

// account is the in-memory state of one tenant. It is loaded from the store on first use.
type account struct {
	*quota.Account
	// records and workspaces serialize changes of the tenant's stored records
	// (ctx_mutex.go).
	records, workspaces ctxMutex
}

// getAccount returns the account of an existing tenant.
func (g *gate) getAccount(ctx context.Context, tenant string) (*account, error) {
	if a, ok := g.accounts.Load(tenant); ok {
		return a.(*account), nil
	}
	g.tenantMu.Lock()
	defer g.tenantMu.Unlock()
	return g.loadAccount(ctx, tenant)
}

// loadAccount reads a tenant's record and today's usage from the store, unless
// the account is already loaded. The caller holds tenantMu.
func (g *gate) loadAccount(ctx context.Context, tenant string) (*account, error) {
	if a, ok := g.accounts.Load(tenant); ok {
		return a.(*account), nil
	}
	t, err := g.Store.GetTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	today := brig.DayOf(g.Now())
	lines, err := g.Store.Usage(ctx, tenant, today, today)
	if err != nil {
		return nil, err
	}
	a := &account{
		Account: quota.New(g.Now, *t, g.LimitRange.Within(t.Ceilings), lines),
		records: newCtxMutex(), workspaces: newCtxMutex(),
	}
	g.accounts.Store(tenant, a)
	return a, nil
}

// track records the reservation of a sandbox that has an instance.
func (g *gate) track(id brig.ID, p *quota.Reservation) {
	g.sandboxes.update(id, func(s *sandbox) { s.reservation = p })
}

// trackExisting takes a reservation for a sandbox that an earlier server
// created, and records it.
func (g *gate) trackExisting(ctx context.Context, r *brig.Record) error {
	a, err := g.getAccount(ctx, r.Tenant)
	if err != nil {
		return err
	}
	spec := r.Spec
	spec.Labels = maps.Clone(spec.Labels)
	g.track(r.ID, a.ReserveExisting(spec))
	return nil
}
