package engine

import (
	"context"
	"math"

	"github.com/brig-run/brig"
)

// mayTenant reports why the caller may not know of a tenant. To all but
// operators, those of others do not exist.
func (e *Engine) mayTenant(ctx context.Context, v *visit, tenant string) error {
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	return e.mayTenantLocked(ctx, v, tenant)
}

func (e *Engine) mayTenantLocked(ctx context.Context, v *visit, tenant string) error {
	if tenant != v.actor.Tenant && v.actor.Role < brig.Operator {
		return errNoTenant(tenant)
	}
	_, err := e.loadAccount(ctx, tenant)
	if brig.KindOf(err) == brig.NotFound {
		return errNoTenant(tenant)
	}
	return err
}

// ofTenant is the tenant that a question is about, which is the caller's own if
// it names none. Operators may ask about all of them.
func (e *Engine) ofTenant(ctx context.Context, v *visit, tenant string) (string, error) {
	if tenant == "" {
		tenant = v.actor.Tenant
	}
	if tenant == brig.AllTenants && v.actor.Role >= brig.Operator {
		return tenant, nil
	}
	return tenant, e.mayTenant(ctx, v, tenant)
}

func errNoTenant(tenant string) error {
	return brig.Errorf(brig.NotFound, "no tenant %q", clip(tenant)).WithHint("an operator lists tenants with brig tenant ls")
}

func (e *Engine) checkTenant(t brig.Tenant) error {
	if t.Budget < 0 || math.IsNaN(t.Budget) || math.IsInf(t.Budget, 0) {
		return brig.InvalidField("budget", "%v cannot be a budget", t.Budget).WithHint("give a number above 0, or 0 for none")
	}
	if t.Ceilings.Screening != nil && e.ScreenBy == nil {
		return brig.InvalidField("ceilings.screening", "this server screens no code").WithHint("leave it out")
	}
	if !brig.ValidName(t.Name) {
		return nameError("name", t.Name)
	}
	if err := t.Quota.Check(); err != nil {
		return err
	}
	return t.Ceilings.Check()
}

// CreateTenant implements brig.Service.
func (e *Engine) CreateTenant(ctx context.Context, t brig.Tenant) (_ *brig.Tenant, err error) {
	v, err := e.enter(ctx, brig.OpCreateTenant, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if t.Quota == (brig.Quota{}) {
		t.Quota = e.Quota
	}
	if err := e.checkTenant(t); err != nil {
		return nil, err
	}
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	switch _, err := e.Store.GetTenant(ctx, t.Name); {
	case err == nil:
		return nil, brig.Errorf(brig.AlreadyExists, "a tenant named %q exists", t.Name).WithHint("choose another name")
	case brig.KindOf(err) != brig.NotFound:
		return nil, err
	}
	t.Created = e.Now().UTC()
	if err := e.Store.PutTenant(ctx, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// Tenants implements brig.Service.
func (e *Engine) Tenants(ctx context.Context) (_ []*brig.Tenant, err error) {
	v, err := e.enter(ctx, brig.OpTenants, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Store.Tenants(ctx)
}

// GetTenant implements brig.Service.
func (e *Engine) GetTenant(ctx context.Context, name string) (_ *brig.Tenant, err error) {
	v, err := e.enter(ctx, brig.OpGetTenant, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if name == "" {
		name = v.actor.Tenant
	}
	if err := e.mayTenant(ctx, v, name); err != nil {
		return nil, err
	}
	return e.Store.GetTenant(ctx, name)
}

// UpdateTenant implements brig.Service.
func (e *Engine) UpdateTenant(ctx context.Context, t brig.Tenant) (_ *brig.Tenant, err error) {
	v, err := e.enter(ctx, brig.OpUpdateTenant, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := e.checkTenant(t); err != nil {
		return nil, err
	}
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	if err := e.mayTenantLocked(ctx, v, t.Name); err != nil {
		return nil, err
	}
	old, err := e.Store.GetTenant(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	t.Created = old.Created
	if err := e.Store.PutTenant(ctx, &t); err != nil {
		return nil, err
	}
	a, err := e.loadAccount(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	a.change(t, e.Bounds.Within(t.Ceilings))
	return &t, nil
}

// RemoveTenant implements brig.Service.
func (e *Engine) RemoveTenant(ctx context.Context, name string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveTenant, "")
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	if name == v.actor.Tenant {
		return brig.Errorf(brig.FailedPrecondition, "%q is the caller's own tenant", name).WithHint("use an operator's key of another tenant")
	}
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	if err := e.mayTenantLocked(ctx, v, name); err != nil {
		return err
	}
	a, err := e.loadAccount(ctx, name)
	if err != nil {
		return err
	}
	if !a.close() {
		return errInUse(name)
	}
	e.flushing.Lock() // or its usage would be written after it is gone
	defer e.flushing.Unlock()
	// Nothing new can begin; what has ended is on record for a while.
	recs, _, err := e.Store.List(ctx, name, brig.ListOptions{Limit: 1})
	if err == nil && len(recs) > 0 {
		err = errInUse(name)
	}
	if err == nil {
		err = e.dropWorkspaces(ctx, name)
	}
	if err == nil {
		err = e.Store.DeleteTenant(ctx, name)
	}
	if err != nil {
		a.reopen()
		return err
	}
	e.accounts.Delete(name)
	return nil
}

func errInUse(tenant string) error {
	return brig.Errorf(brig.FailedPrecondition, "the tenant %q has sandboxes", tenant).
		WithHint("remove them first, those that have ended too")
}
