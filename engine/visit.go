package engine

import (
	"context"

	"github.com/brig-run/brig"
)

// Visit lets a call of one of brig.DoorOps in, as all others are, and does it:
// it is about something that a door keeps for tenants by itself, whose name is
// for the audit log. do is told for which tenant, and does not wait.
func (e *Engine) Visit(ctx context.Context, op brig.Op, name string, do func(brig.Tenant) error) (err error) {
	v, err := e.enter(ctx, op, "", func(v *visit) { v.say(brig.DetailName, name) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	return do(v.account.whose())
}

// whose is the tenant as it is now.
func (a *account) whose() brig.Tenant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenant
}
