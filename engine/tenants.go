package engine

import (
	"context"
	"math"
	"time"

	"github.com/brig-run/brig"
)

// checkTenantAccess returns an error if the caller may not access a tenant. To
// callers who are not operators, other tenants do not exist.
func (d *identity) checkTenantAccess(ctx context.Context, v *call, tenant string) error {
	d.tenantMu.Lock()
	defer d.tenantMu.Unlock()
	return d.checkTenantAccessLocked(ctx, v, tenant)
}

func (d *identity) checkTenantAccessLocked(ctx context.Context, v *call, tenant string) error {
	if tenant != v.actor.Tenant && v.actor.Role < brig.Operator {
		return errNoTenant(tenant)
	}
	_, err := d.loadAccount(ctx, tenant)
	if brig.KindOf(err) == brig.NotFound {
		return errNoTenant(tenant)
	}
	return err
}

// ofTenant returns the tenant of a request. The default is the caller's own
// tenant. Operators may also request all tenants.
func (d *identity) ofTenant(ctx context.Context, v *call, tenant string) (string, error) {
	if tenant == "" {
		tenant = v.actor.Tenant
	}
	if tenant == brig.AllTenants && v.actor.Role >= brig.Operator {
		return tenant, nil
	}
	return tenant, d.checkTenantAccess(ctx, v, tenant)
}

func errNoTenant(tenant string) error {
	return brig.Errorf(brig.NotFound, "no tenant %q", truncate(tenant)).WithHint("an operator lists tenants with brig tenant ls")
}

func (d *identity) checkTenant(t brig.Tenant) error {
	if t.Budget < 0 || math.IsNaN(t.Budget) || math.IsInf(t.Budget, 0) {
		return brig.InvalidField("budget", "%v cannot be a budget", t.Budget).WithHint("give a number above 0, or 0 for none")
	}
	if t.Ceilings.Screening != nil && d.ScreenTenant == nil {
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
func (d *identity) CreateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	return do(ctx, d.gate, brig.OpCreateTenant, "", func(v *call) (*brig.Tenant, error) {
		if t.Quota == (brig.Quota{}) {
			t.Quota = d.Quota
		}
		if err := d.checkTenant(t); err != nil {
			return nil, err
		}
		d.tenantMu.Lock()
		defer d.tenantMu.Unlock()
		switch _, err := d.Store.GetTenant(ctx, t.Name); {
		case err == nil:
			return nil, brig.Errorf(brig.AlreadyExists, "a tenant named %q exists", t.Name).WithHint("choose another name")
		case brig.KindOf(err) != brig.NotFound:
			return nil, err
		}
		t.Created = d.Now().UTC()
		t.Rev = nextRev(t.Created, 0)
		if err := d.Store.PutTenant(ctx, &t); err != nil {
			return nil, err
		}
		return &t, nil
	})
}

// Tenants implements brig.Service.
func (d *identity) Tenants(ctx context.Context) ([]*brig.Tenant, error) {
	return do(ctx, d.gate, brig.OpTenants, "", func(v *call) ([]*brig.Tenant, error) {
		list, err := d.Store.Tenants(ctx)
		for _, t := range list {
			withRevision(t)
		}
		return list, err
	})
}

// GetTenant implements brig.Service.
func (d *identity) GetTenant(ctx context.Context, name string) (*brig.Tenant, error) {
	return do(ctx, d.gate, brig.OpGetTenant, "", func(v *call) (*brig.Tenant, error) {
		if name == "" {
			name = v.actor.Tenant
		}
		if err := d.checkTenantAccess(ctx, v, name); err != nil {
			return nil, err
		}
		t, err := d.Store.GetTenant(ctx, name)
		return withRevision(t), err
	})
}

// withRevision returns a tenant with its revision. Records written by earlier
// versions have no revision and get 1.
func withRevision(t *brig.Tenant) *brig.Tenant {
	if t != nil {
		t.Rev = max(t.Rev, 1)
	}
	return t
}

// nextRev returns the revision of a change that is made now. It is the time in
// microseconds, which a JSON number can hold exactly, and always greater than
// was.
func nextRev(now time.Time, was int64) int64 { return max(now.UnixMicro(), was+1) }

// UpdateTenant implements brig.Service.
func (d *identity) UpdateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	return do(ctx, d.gate, brig.OpUpdateTenant, "", func(v *call) (*brig.Tenant, error) {
		if err := d.checkTenant(t); err != nil {
			return nil, err
		}
		d.tenantMu.Lock()
		defer d.tenantMu.Unlock()
		if err := d.checkTenantAccessLocked(ctx, v, t.Name); err != nil {
			return nil, err
		}
		old, err := d.Store.GetTenant(ctx, t.Name)
		if err != nil {
			return nil, err
		}
		if err := brig.CheckRev(t.Rev, withRevision(old).Rev); err != nil {
			return nil, err
		}
		t.Created, t.Rev = old.Created, nextRev(d.Now(), old.Rev)
		if err := d.Store.PutTenant(ctx, &t); err != nil {
			return nil, err
		}
		a, err := d.loadAccount(ctx, t.Name)
		if err != nil {
			return nil, err
		}
		a.Change(t, d.LimitRange.Within(t.Ceilings))
		return &t, nil
	})
}

func errInUse(tenant string) error {
	return brig.Errorf(brig.FailedPrecondition, "the tenant %q has sandboxes", tenant).
		WithHint("remove them first, those that have ended too")
}
