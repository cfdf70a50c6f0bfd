package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/internal/span"
)

// Check implements brig.Gate. It records a rejection like a rejection of the call itself. The
// admitted call itself passes the gate again.
func (e *Engine) Check(ctx context.Context, op brig.Op, name string) error {
	_, err := e.check(ctx, op, name)
	return err
}

// check is like Check, but also returns the sandbox's record.
func (e *Engine) check(ctx context.Context, op brig.Op, name string) (*brig.Record, error) {
	v := &call{e: e.gate, callAudit: e.newAudit(ctx, op), checkOnly: true}
	err := e.admit(ctx, v, name)
	if err == nil {
		err = e.rejectOverload(v)
	}
	if err != nil {
		v.recordRejection(ctx, err)
		_, s := span.Start(ctx, "gate")
		s.Set("brig.operation", op.Name)
		s.Fail(brig.KindOf(err).Code())
		s.End()
	}
	return v.rec, err
}

// rejectOverload rejects a call before its body is read, if the call needs a new sandbox whose
// creation could not begin in time.
func (e *Engine) rejectOverload(v *call) error {
	if v.op != brig.OpRun && v.op != brig.OpCreate {
		return nil
	}
	if now := e.backends.Current(); len(now.Backends) != 1 || now.Backends[e.builtinID] == nil || e.pool.hasInstance() {
		return nil // another provider or the pool may serve the call
	}
	if err := e.capacity.CheckAdmission(v.actor.Tenant); err != nil {
		return brig.AsError(err)
	}
	return nil
}

// Create implements brig.Service. It rejects BuildRights, which only the engine may set.
func (e *Engine) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	if spec.BuildRights {
		return nil, errBuildRights()
	}
	return e.create(ctx, spec)
}

// create creates a sandbox for a caller or, with BuildRights, for a build of the engine.
func (e *Engine) create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	return do(ctx, e.gate, brig.OpCreate, "", func(v *call) (_ *brig.Sandbox, err error) {
		spec, t, err := e.applyTemplate(spec)
		if err != nil {
			return nil, err
		}
		if spec, err = e.completeSpec(v, spec); err != nil {
			return nil, err
		}
		if err := v.checkGrant(cmp.Or(spec.Name, "-")); err != nil {
			return nil, err
		}
		if err := e.admitSpec(ctx, v, &spec); err != nil {
			return nil, err
		}
		done, err := e.admitMounts(ctx, v, &spec)
		if err != nil {
			return nil, err
		}
		defer done()
		spec.Ephemeral, spec.Blank, spec.Held = false, false, false
		placement := placementRequest{tenant: v.actor.Tenant, spec: &spec, constraints: spec.Placement}
		candidates, err := e.route(ctx, placement)
		if err != nil {
			return nil, err
		}
		var m *machine
		err = e.dispatch(ctx, v, placement, candidates, func(s candidate) (err error) {
			m, err = e.acquire(ctx, v, s, spec, requirements{prefix: "sandbox-", languages: []brig.Language{brig.Python, ""}, template: t})
			return err
		})
		if err != nil {
			return nil, err
		}
		e.addPooledSession(m)
		e.startPauser(ctx, m.rec, m.in)
		e.holdSession(ctx, m.rec)
		out := m.rec.Sandbox
		e.fillEnforcement(&out)
		return &out, nil
	})
}

// Get implements brig.Service.
func (e *Engine) Get(ctx context.Context, name string) (*brig.Sandbox, error) {
	return do(ctx, e.gate, brig.OpGet, name, func(v *call) (*brig.Sandbox, error) {
		e.fillEnforcement(&v.rec.Sandbox)
		return &v.rec.Sandbox, nil
	})
}

// RotateKey implements brig.Service.
func (e *Engine) RotateKey(ctx context.Context) (int, error) {
	return do(ctx, e.gate, brig.OpRotateKey, "", func(v *call) (n int, err error) {
		if err := e.checkSecretsStored(); err != nil {
			return 0, err
		}
		// Complete the work even if the caller disconnects.
		ctx := context.WithoutCancel(ctx)
		err = e.Options.Keys.Rotate(ctx, func() error {
			e.resealMu.Lock()
			defer e.resealMu.Unlock()
			all, err := e.Store.AllSecrets(ctx)
			for _, s := range all {
				if err == nil && s.Key != e.Options.Keys.Primary() {
					n++
					err = e.reseal(ctx, s)
				}
			}
			if err == nil {
				err = e.resealSettings(ctx)
			}
			if err == nil {
				err = e.resealVariables(ctx)
			}
			if err == nil {
				err = e.resealWebhooks(ctx)
			}
			if err == nil {
				err = e.packs.reseal(ctx)
			}
			return err
		})
		if errors.Is(err, seal.ErrFixed) {
			err = brig.Errorf(brig.FailedPrecondition, "the key came with the server's environment").
				WithHint("start the server with BRIG_MASTER_KEY=NEW,OLD; every secret that is set again is sealed with the new one")
		}
		v.addDetail(brig.DetailVersion, e.Options.Keys.Primary())
		return n, err
	})
}

// RemoveTenant implements brig.Service.
func (e *Engine) RemoveTenant(ctx context.Context, name string) error {
	return e.do(ctx, brig.OpRemoveTenant, "", func(v *call) (err error) {
		if name == v.actor.Tenant {
			return brig.Errorf(brig.FailedPrecondition, "%q is the caller's own tenant", name).WithHint("use an operator's key of another tenant")
		}
		e.tenantMu.Lock()
		defer e.tenantMu.Unlock()
		if err := e.checkTenantAccessLocked(ctx, v, name); err != nil {
			return err
		}
		a, err := e.loadAccount(ctx, name)
		if err != nil {
			return err
		}
		if !a.Close() {
			return errInUse(name)
		}
		releaseChanges, err := a.awaitChanges(ctx)
		if err != nil {
			a.Reopen()
			return err
		}
		defer releaseChanges()
		e.flushMu.Lock() // otherwise the usage would be written after the tenant's removal
		defer e.flushMu.Unlock()
		// The closed account admits no new sandboxes, but ended sandboxes keep
		// a record for a while.
		recs, _, err := e.Store.List(ctx, name, brig.ListOptions{Limit: 1})
		if err == nil && len(recs) > 0 {
			err = errInUse(name)
		}
		if err == nil {
			err = e.dropWorkspaces(ctx, name)
		}
		if err == nil {
			err = e.dropVolumes(ctx, name)
		}
		if err == nil {
			e.closeNotes(name)
			err = e.deleteTenant(ctx, name)
		}
		if err != nil {
			a.Reopen()
			return err
		}
		e.accounts.Delete(name)
		return nil
	})
}

// deleteTenant deletes a tenant with its routing, which is a setting. The lock prevents concurrent
// writes of the routing. The reload prevents a later tenant of the same name from inheriting the
// routing in memory.
func (e *Engine) deleteTenant(ctx context.Context, name string) error {
	e.backends.Lock()
	defer e.backends.Unlock()
	if err := e.Store.DeleteTenant(ctx, name); err != nil {
		return err
	}
	if err := e.reloadLocked(context.WithoutCancel(ctx), false); err != nil {
		e.Log.WarnContext(ctx, "failed to read the settings after a tenant was removed; retrying", "err", err)
	}
	return nil
}

// Load returns the current load of the server. It covers all tenants, so only
// the server's own wiring calls it, not the API.
func (e *Engine) Load() brig.Load {
	l := brig.Load{Sandboxes: map[string]int{}}
	l.Making, l.Waiting = e.capacity.Load()
	e.executionCounter.mu.Lock()
	l.Executions = maps.Clone(e.executionCounter.executions)
	e.executionCounter.mu.Unlock()
	e.sandboxes.updateEach(func(_ brig.ID, s *sandbox) {
		if s.backend != nil {
			l.Sandboxes[s.backend.ID]++
		}
	})
	return l
}

// Pool implements brig.Service.
func (e *Engine) Pool(ctx context.Context) ([]brig.PoolClass, error) {
	return do(ctx, e.gate, brig.OpPool, "", func(v *call) ([]brig.PoolClass, error) {
		return e.pool.status(), nil
	})
}

// BuildService is the Service for builds of templates. In contrast to the Engine, it creates sandboxes
// with Spec.BuildRights. No API of the network may use it.
type BuildService struct{ *Engine }

// Create implements brig.Service.
func (b BuildService) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	return b.create(ctx, spec)
}

// Fork implements brig.Service.
func (b BuildService) Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	return b.forks.forkSandbox(ctx, name, o, func(*call, brig.ForkSpec) error { return nil })
}

// CallLimits returns the limit range of the calls of a tenant.
func (b BuildService) CallLimits(ctx context.Context, tenant string) (brig.LimitRange, error) {
	a, err := b.getAccount(ctx, tenant)
	if err != nil {
		return brig.LimitRange{}, err
	}
	limitRange, _ := a.CallLimits()
	return limitRange, nil
}

// KeepPaused postpones the end of a paused sandbox, as a copy of it does.
func (b BuildService) KeepPaused(ctx context.Context, tenant string, id brig.ID) error {
	limitRange, err := b.CallLimits(ctx, tenant)
	if err != nil {
		return err
	}
	rec, err := b.Store.Get(ctx, tenant, string(id))
	if err != nil {
		return err
	}
	b.forks.postponeEnd(ctx, rec, limitRange.MaxPause)
	return nil
}

// Uncounted returns a context whose calls do not count against the rate of the tenant: a build is one
// call of its tenant, and its steps must neither fail nor leave sandboxes behind because of the rate.
func (BuildService) Uncounted(ctx context.Context) context.Context {
	return context.WithValue(ctx, uncountedKey{}, true)
}

// uncountedKey is the key of a context whose calls do not count against a rate.
type uncountedKey struct{}

func errBuildRights() error {
	return brig.InvalidField("build_rights", "only the server sets it, for the sandboxes in which it builds templates").WithHint("leave it out")
}
