package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Create implements brig.Service.
func (e *Engine) Create(ctx context.Context, spec brig.Spec) (_ *brig.Sandbox, err error) {
	v, err := e.enter(ctx, brig.OpCreate, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	spec, t, err := e.fromTemplate(spec)
	if err != nil {
		return nil, err
	}
	if spec, err = e.complete(v, spec); err != nil {
		return nil, err
	}
	if err := v.beyondGrant(cmp.Or(spec.Name, "-")); err != nil {
		return nil, err
	}
	if err := e.checkEgress(v.actor, &spec.Egress); err != nil {
		return nil, err
	}
	if err := e.findSecrets(ctx, v.actor.Tenant, spec.Secrets); err != nil {
		return nil, err
	}
	if spec.Workspace, err = e.findWorkspace(ctx, v.actor.Tenant, spec); err != nil {
		return nil, err
	}
	spec.Ephemeral, spec.Blank, spec.Held = false, false, false
	way := errand{tenant: v.actor.Tenant, spec: &spec, place: spec.Placement}
	stops, err := e.route(ctx, way)
	if err != nil {
		return nil, err
	}
	var m *machine
	err = e.travel(ctx, v, way, stops, func(s stop) (err error) {
		m, err = e.obtain(ctx, v, s, spec, wish{prefix: "sandbox-", kinds: []brig.Language{brig.Python, ""}, template: t})
		return err
	})
	if err != nil {
		return nil, err
	}
	e.offer(m)
	e.sleep(ctx, m.rec, m.in)
	out := m.rec.Sandbox
	e.tellEnforcement(&out)
	return &out, nil
}

// Get implements brig.Service.
func (e *Engine) Get(ctx context.Context, name string) (_ *brig.Sandbox, err error) {
	v, err := e.enter(ctx, brig.OpGet, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	e.tellEnforcement(&v.rec.Sandbox)
	return &v.rec.Sandbox, nil
}

// List implements brig.Service.
func (e *Engine) List(ctx context.Context, o brig.ListOptions) (_ *brig.Page, err error) {
	v, err := e.enter(ctx, brig.OpList, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if o.Limit < 0 || o.Limit > 1000 {
		return nil, brig.InvalidField("limit", "%d is out of bounds", o.Limit).WithHint("give 1 to 1000")
	}
	recs, next, err := e.Store.List(ctx, v.actor.Tenant, o)
	if err != nil {
		return nil, err
	}
	page := &brig.Page{Next: next}
	for _, r := range recs {
		if !e.isUnwanted(r.ID) {
			page.Sandboxes = append(page.Sandboxes, &r.Sandbox)
		}
	}
	return page, nil
}

// Extend implements brig.Service.
func (e *Engine) Extend(ctx context.Context, name string, ttl time.Duration) (_ *brig.Sandbox, err error) {
	v, err := e.enter(ctx, brig.OpExtend, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if ttl, err = v.bounds.FillTTL("ttl_ms", ttl); err != nil {
		return nil, err
	}
	in, err := e.running(v.rec)
	if err != nil {
		return nil, err
	}
	rec, err := e.setLease(ctx, v.rec, in, e.Now().Add(ttl))
	if err != nil {
		return nil, err
	}
	return &rec.Sandbox, nil
}

// running returns the machine of a sandbox that runs.
func (e *Engine) running(rec *brig.Record) (brig.Instance, error) {
	in := e.instance(rec.ID)
	if rec.State != brig.Running || in == nil {
		state := string(rec.State)
		if rec.Exit != nil {
			state += " (" + string(rec.Exit.Reason) + ")"
		}
		return nil, brig.Errorf(brig.FailedPrecondition, "sandbox %q is %s", rec.Spec.Name, state).
			WithHint("create a new one; logs and exit of this one are kept")
	}
	return in, nil
}

// setLease moves the end of a lease, never beyond the longest life.
func (e *Engine) setLease(ctx context.Context, rec *brig.Record, in brig.Instance, end time.Time) (*brig.Record, error) {
	a, err := e.account(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	bounds, _ := a.terms()
	if last := rec.Created.Add(bounds.MaxLife); end.After(last) {
		end = last
	}
	if err := in.Extend(ctx, end.Add(spare(rec.Spec))); err != nil {
		return nil, e.lost(ctx, rec, in, err)
	}
	failpoint.Hit("lease.extended")
	return e.update(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Expires = end.UTC()
		return nil
	})
}

// lost makes of a machine's silence what it means, if the machine is gone.
func (e *Engine) lost(ctx context.Context, rec *brig.Record, in brig.Instance, err error) error {
	if !gone(in) {
		return err
	}
	if now, settleErr := e.settle(context.WithoutCancel(ctx), rec.Tenant, rec.ID, in); settleErr == nil {
		if _, ended := e.running(now); ended != nil {
			return brig.AsError(ended).Because(err)
		}
	}
	return err
}

// update changes a record, again if somebody else was faster.
func (e *Engine) update(ctx context.Context, tenant string, id brig.ID, change func(*brig.Record) error) (*brig.Record, error) {
	return e.updateAnd(ctx, tenant, id, change, func(*brig.Record) []brig.Event { return nil })
}

// updateAnd is update, with events of what has changed.
func (e *Engine) updateAnd(ctx context.Context, tenant string, id brig.ID, change func(*brig.Record) error, tell func(*brig.Record) []brig.Event) (*brig.Record, error) {
	for {
		rec, err := e.Store.Get(ctx, tenant, string(id))
		if err != nil {
			return nil, err
		}
		before := rec.State
		if err := change(rec); err != nil {
			return nil, err
		}
		if err := before.To(rec.State); err != nil {
			return nil, err
		}
		err = e.Store.Put(ctx, rec, tell(rec)...)
		if brig.KindOf(err) != brig.FailedPrecondition {
			return rec, err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
}

// settle records the end of a machine that is gone.
func (e *Engine) settle(ctx context.Context, tenant string, id brig.ID, in brig.Instance) (*brig.Record, error) {
	defer e.drop(id)
	rec, err := e.updateAnd(ctx, tenant, id, func(r *brig.Record) error {
		if r.State == brig.Ended {
			return errSettled
		}
		r.State = brig.Ended
		r.Exit = in.Exit()
		r.Ended = e.Now().UTC()
		if r.Exit != nil && !r.Exit.At.IsZero() {
			r.Ended = r.Exit.At
		}
		return nil
	}, func(r *brig.Record) []brig.Event { return []brig.Event{e.ended(r)} })
	failpoint.Hit("settle.recorded")
	if errors.Is(err, errSettled) {
		return e.Store.Get(ctx, tenant, string(id))
	}
	// The record of a one-shot is mostly removed before its machine's end is seen:
	// counted here, it would depend on who is faster.
	if err == nil && rec.Exit != nil && !rec.Spec.Ephemeral {
		e.Observer.Gone(rec.Provider, rec.Exit.Reason)
	}
	return rec, err
}

var errSettled = errors.New("settled before")

// Usage says what a sandbox has used. Whoever may see the sandbox may know.
func (e *Engine) Usage(ctx context.Context, name string) (_ *brig.Usage, err error) {
	v, err := e.enter(ctx, brig.OpGet, name)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	in, err := e.running(v.rec)
	if err != nil {
		return nil, err
	}
	return in.Usage(ctx)
}
