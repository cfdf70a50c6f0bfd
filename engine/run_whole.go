package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/span"
)

// checkTime bounds the question whether a provider can be reached.
const checkTime = 3 * time.Second

// runWhole has a provider without machines run a program. There is no record of
// a sandbox: nobody could find one.
func (e *Engine) runWhole(ctx context.Context, v *visit, s stop, p brig.Program, j *job, sio brig.IO) (*brig.Outcome, error) {
	if p.Step != nil {
		return nil, errors.Join(brig.InvalidField("step", "the provider %s takes whole programs, and no steps", s.at.id).
			WithHint("leave out step, or place the program with another provider"), errUnbegun)
	}
	runner, ok := s.at.provider.(brig.Runner)
	if !ok {
		return nil, over(brig.Errorf(brig.Internal, "the provider %s runs programs only, and cannot", s.at.id))
	}
	seat, err := v.account.lodge(j.spec)
	if err != nil {
		return nil, errors.Join(over(err), errUnbegun)
	}
	defer seat.end()
	if err := s.at.enter(s.most); err != nil {
		return nil, errors.Join(err, errUnbegun)
	}
	defer e.left(s.at)
	rec := &brig.Record{Sandbox: brig.Sandbox{ID: newID(), Tenant: v.actor.Tenant, Spec: j.spec, Provider: s.at.id, Route: s.route}}
	if rec.Spec.Name == "" {
		rec.Spec.Name = newName(j.wish().prefix)
	}
	v.id = rec.ID
	v.takesPlace(rec)
	v.sayRecord(rec)
	if err := v.store().Append(ctx, v.intent()...); err != nil {
		return nil, over(err)
	}
	v.begins()
	var said spoken
	rctx, step := span.Start(ctx, "run")
	step.Set("brig.provider", rec.Provider)
	o, err := runner.Run(rctx, rec.ID, whole(p, j), said.hear(sio))
	endStep(step, err)
	e.noteHealth(s.at, err)
	switch {
	case err == nil:
	case errors.Is(err, brig.ErrBegan) && !again(j, &said, sio):
		return nil, over(err)
	case errors.Is(err, brig.ErrBegan):
		return nil, err
	default:
		return nil, errors.Join(err, errUnbegun)
	}
	o.Sandbox, o.ID, o.Route = rec.Spec.Name, rec.ID, s.route
	v.sayResult(&o.Result)
	v.endedAs(o)
	if v.op != brig.OpRun { // what an administrator tries is not kept
		return o, nil
	}
	wctx, cancel := cleanup(ctx)
	defer cancel()
	if err := v.store().PutRun(wctx, v.actor.Tenant, o, v.outcome()); err != nil {
		return nil, over(err)
	}
	e.tellRun(ctx, v.tells(), nil)
	return o, nil
}

// whole is a program as it was planned: with every default, and compiled.
func whole(p brig.Program, j *job) brig.Program {
	p.Limits, p.Timeout, p.Env, p.Labels = j.spec.Limits, j.cmd.Timeout, j.spec.Env, j.spec.Labels
	if p.Language == brig.TypeScript {
		p.Language, p.Code = brig.JavaScript, j.order.Code
	}
	return p
}

// atFault says of an error of a program whose machine is gone whether its
// provider is to blame: then another one may run it from the beginning, if
// nothing has come out.
func (e *Engine) atFault(ctx context.Context, m *machine, err error, again bool) error {
	if c, ok := m.at.provider.(brig.Checker); ok && ctx.Err() == nil && (gone(m.in) || brig.Elsewhere(err)) {
		cctx, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		if down := c.Check(cctx); down != nil {
			err = brig.Errorf(brig.Unavailable, "the provider %s went away while the program ran", m.at.id).
				WithHint("run it again").Because(errors.Join(err, down))
			e.noteHealth(m.at, err)
		}
	}
	if brig.Elsewhere(err) && !again {
		return over(err)
	}
	return err
}
