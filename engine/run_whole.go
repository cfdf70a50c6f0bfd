package engine

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/span"
)

// providerCheckTimeout is the timeout of a provider's health check.
const providerCheckTimeout = 3 * time.Second

// runAtRunner runs a program with a provider that has no sandboxes. It does not write a sandbox
// record, because no call could use such a record.
func (rs *runs) runAtRunner(ctx context.Context, v *call, s candidate, p brig.Program, j *job, sio brig.IO) (*brig.Outcome, error) {
	if p.Step != nil {
		return nil, errors.Join(brig.InvalidField("step", "the provider %s takes whole programs, and no steps", s.backend.ID).
			WithHint("leave out step, or place the program with another provider"), errNotStarted)
	}
	runner, ok := s.backend.Provider.(brig.Runner)
	if !ok {
		return nil, withoutRetry(brig.Errorf(brig.Internal, "the provider %s runs programs only, and cannot", s.backend.ID))
	}
	alloc, err := rs.allocateNew(v, s.backend, s.maxUsers, j.spec)
	if err != nil {
		return nil, errors.Join(err, errNotStarted)
	}
	defer alloc.release()
	v.reservations = append(v.reservations, alloc.reservation)
	rec := &brig.Record{Sandbox: brig.Sandbox{ID: newID(), Tenant: v.actor.Tenant, Spec: j.spec, Provider: s.backend.ID, Route: s.route}}
	if rec.Spec.Name == "" {
		rec.Spec.Name = newName(j.requirements().prefix)
	}
	v.id = rec.ID
	v.setSandbox(rec)
	v.addRecord(rec)
	if err := v.store().Append(ctx, v.intentEvents()...); err != nil {
		return nil, withoutRetry(err)
	}
	v.markStarted()
	var written outputFlag
	rctx, step := span.Start(ctx, "run")
	step.Set("brig.provider", rec.Provider)
	o, err := runner.Run(rctx, rec.ID, resolvedProgram(p, j), written.watch(sio))
	endStep(step, err)
	rs.providers.noteHealth(s.backend, err)
	switch {
	case err == nil:
	case brig.RetryOf(err) == brig.RetryContained && !canRunAgain(j, &written, sio):
		return nil, withoutRetry(err)
	case brig.RetryOf(err) == brig.RetryContained:
		return nil, err
	default:
		return nil, errors.Join(err, errNotStarted)
	}
	o.Sandbox, o.ID, o.Route = rec.Spec.Name, rec.ID, s.route
	v.addResult(&o.Result)
	v.setOutcome(o)
	if v.op != brig.OpRun { // the outcome of an administrator's test is not stored
		return o, nil
	}
	wctx, cancel := detachedContext(ctx)
	defer cancel()
	if err := v.store().PutRun(wctx, v.actor.Tenant, o, v.outcomeEvent()); err != nil {
		return nil, withoutRetry(err)
	}
	rs.lifecycle.trimSoon(wctx, v.actor.Tenant)
	rs.logRun(ctx, v.executionForLog(), nil)
	return o, nil
}

// resolvedProgram returns a program with all defaults applied and TypeScript
// compiled.
func resolvedProgram(p brig.Program, j *job) brig.Program {
	p.Limits, p.Timeout, p.Env, p.Labels = j.spec.Limits, j.cmd.Timeout, j.spec.Env, j.spec.Labels
	if p.Language == brig.TypeScript {
		p.Language, p.Code = brig.JavaScript, j.request.Code
	}
	return p
}

// mapProviderError turns the error of a program into an error of its provider, if the provider
// caused it. If retryable is true, another provider may then run the program from the beginning.
func (rs *runs) mapProviderError(ctx context.Context, m *machine, err error, retryable bool) error {
	if c, ok := m.backend.Provider.(brig.Checker); ok && ctx.Err() == nil && (hasEnded(m.in) || brig.CanRetryElsewhere(err)) {
		cctx, cancel := context.WithTimeout(ctx, providerCheckTimeout)
		defer cancel()
		if down := c.Check(cctx); down != nil {
			err = brig.Errorf(brig.Unavailable, "the provider %s was lost while the program ran", m.backend.ID).
				WithHint("run it again").Because(errors.Join(err, down))
			rs.providers.noteHealth(m.backend, err)
		}
	}
	if brig.CanRetryElsewhere(err) && !retryable {
		return withoutRetry(err)
	}
	return err
}
