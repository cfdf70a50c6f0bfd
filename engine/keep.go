package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
)

// noSandbox makes trim check only the tenant.
const noSandbox brig.ID = "-"

// trimDelay is the time between the first addition of an outcome and the trim of its tenant.
const trimDelay = 50 * time.Millisecond

// trimSoon trims a tenant's outcomes after trimDelay, so that it does not slow down the run that
// has added one. The additions during a trim cause one more.
func (l *lifecycle) trimSoon(ctx context.Context, tenant string) {
	a, err := l.getAccount(ctx, tenant)
	if err != nil || !a.BeginTrim() {
		return // without an account, the tenant has been removed
	}
	l.background.Go(func() {
		for more := true; more; more = a.EndTrim() {
			select {
			case <-time.After(trimDelay):
			case <-l.ctx.Done():
				return // the next server trims everything
			}
			l.trim(l.ctx, tenant, noSandbox)
		}
	})
}

// trim deletes outputs beyond the limits of the tenant and of the sandbox, if the sandbox is given.
// It runs after every addition, so that no client can fill the disk between two rounds of
// housekeeping.
func (l *lifecycle) trim(ctx context.Context, tenant string, sandbox brig.ID) {
	a, err := l.getAccount(ctx, tenant)
	if err == nil {
		err = l.Store.Trim(ctx, tenant, sandbox, l.Retention.Within(a.Quota()))
	}
	if err != nil && brig.KindOf(err) != brig.NotFound && ctx.Err() == nil {
		l.Log.ErrorContext(ctx, "failed to remove old outputs; retrying", "tenant", tenant, "err", err)
	}
}

// trimLater removes ended sandboxes in the background, if their number may
// exceed the limit.
func (l *lifecycle) trimLater(ctx context.Context, tenant string) {
	a, err := l.getAccount(ctx, tenant)
	if err == nil && a.CountEnded(l.Retention.Ended) {
		l.background.Go(func() {
			if err := l.trimEnded(l.ctx, tenant); err != nil && l.ctx.Err() == nil {
				l.Log.Error("failed to remove ended sandboxes; retrying", "tenant", tenant, "err", err)
			}
		})
	}
}

// trimEnded removes a tenant's ended sandboxes beyond the limit, with their logs. It keeps the most
// recently created sandboxes.
func (l *lifecycle) trimEnded(ctx context.Context, tenant string) error {
	o := brig.ListOptions{States: []brig.State{brig.Ended}, Limit: 1000}
	kept := 0
	for {
		page, next, err := l.Store.List(ctx, tenant, o)
		if err != nil {
			return err
		}
		var errs []error
		for _, r := range page {
			if kept++; kept > l.Retention.Ended {
				errs = append(errs, l.destroyAndDelete(ctx, r))
			}
		}
		if err := errors.Join(errs...); err != nil || next == "" {
			return err
		}
		o.Cursor = next
	}
}

// trimAll runs trim and trimEnded for every tenant, and makes the store release
// the freed space.
func (l *lifecycle) trimAll(ctx context.Context) error {
	tenants, err := l.Store.Tenants(ctx)
	errs := []error{err}
	for _, t := range tenants {
		errs = append(errs, l.trimEnded(ctx, t.Name))
		l.trim(ctx, t.Name, "")
	}
	return errors.Join(append(errs, l.Store.Tidy(ctx))...)
}
