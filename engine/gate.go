package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/span"
)

// gate admits or rejects every call, and records its events before the call's
// effect is visible. It holds the tenants' accounts.
type gate struct {
	*env
	// calls counts running calls. Close waits for them, up to closeTimeout.
	calls    sync.WaitGroup
	accounts sync.Map // *account by tenant name
	// rejections counts the calls that the gate has rejected.
	rejections rejections
	// viewerChanges limits the calls of viewers that write to the audit log.
	viewerChanges viewerChanges
	tenantMu      sync.Mutex // held while tenants and keys change, and while accounts are loaded
	prunedAt      time.Time  // last pruning of the audit log; only housekeep accesses it
	// endError describes the end of a sandbox that existed when a call began.
	endError func(context.Context, *brig.Record, time.Duration) error
}

// call is one call in the engine. begin creates it and finish ends it.
type call struct {
	callAudit
	e   *gate
	rec *brig.Record // record of the sandbox that the call names, if any
	// arrived is when the engine received the call. The wait for a slot counts
	// from this time.
	arrived time.Time
	// account is the account of the caller's tenant. limitRange and
	// tenantLimits limit the caller's requests.
	account      *account
	limitRange   brig.LimitRange
	tenantLimits brig.Ceilings
	checkOnly    bool   // the call is only checked, and made later
	release      func() // permits the sandbox to be paused again

	// ran is the observer's report of an execution; nil for calls that are not
	// executions.
	ran          *brig.ExecutionReport
	sandbox      *brig.Record         // record of the sandbox that runs the execution
	reservations []*quota.Reservation // reservations whose time counts from the start of the execution
	started      time.Time            // when the program was handed to its instance
	running      string               // the provider at which the execution is running
	logged       bool                 // the log line has been or will be written
}

// begin admits or rejects a call: it checks the actor, the permissions and the owner of the
// sandbox. The intent of a changing call is written before any change. A call that begins by
// writing a record writes the intent together with the record. note adds the details that are known
// at the start.
func (g *gate) begin(ctx context.Context, op brig.Op, name string, note func(*call)) (*call, error) {
	v := &call{e: g, callAudit: g.newAudit(ctx, op), arrived: time.Now()}
	_, s := span.Start(ctx, "gate")
	s.Set("brig.operation", op.Name)
	defer s.End()
	if err := g.admit(ctx, v, name); err != nil {
		v.recordRejection(ctx, err)
		s.Fail(brig.KindOf(err).Code())
		return nil, err
	}
	if v.rec != nil && op.Changes {
		v.addDetail(brig.DetailName, v.rec.Spec.Name)
		v.addLabels(v.rec.Spec.Labels)
	}
	v.trackExecution()
	if note != nil {
		note(v)
	}
	if err := v.begin(ctx, op == brig.OpRunCode && len(v.rec.Spec.Egress.Rules) == 0); err != nil {
		return nil, err
	}
	g.calls.Add(1)
	return v, nil
}

var _ brig.Gate = (*Engine)(nil)

// recordRejection records that the gate has rejected a call.
func (v *call) recordRejection(ctx context.Context, err error) {
	if brig.KindOf(err) != brig.RateLimited { // excessive calls must not fill the log
		v.appendRejection(ctx, err)
	}
	v.e.Observer.Refused(v.op.Name, brig.KindOf(err))
}

// appendRejection writes the line of a rejected call, unless the call is only counted.
func (v *call) appendRejection(ctx context.Context, err error) {
	if line, ok := v.e.rejections.addRejection(v.actor, v.event(brig.Refused, err), v.e.Now()); ok {
		_ = v.append(ctx, line) // the caller gets the rejection anyway
	}
}

func (g *gate) admit(ctx context.Context, v *call, name string) error {
	if v.actor.Role == brig.Nobody {
		return v.actor.Authorize(v.op)
	}
	if g.Clock.HasPassed(v.actor.Expires) {
		// The API server checked the expiry when the caller authenticated. A connection, or a token
		// derived from the caller's credential, may have outlived the credential.
		return brig.Errorf(brig.Unauthenticated, "the caller's credential has expired").WithHint("ask its issuer for a new one")
	}
	if err := v.actor.Authorize(v.op); err != nil {
		return err
	}
	if err := g.loadAccountOf(ctx, v); err != nil {
		return err
	}
	if !v.op.Sandbox {
		return v.checkGrant("")
	}
	rec, err := g.findSandbox(ctx, v.actor.Tenant, name)
	if err == nil && g.isPendingDelete(rec.ID) {
		err = brig.Errorf(brig.NotFound, "no sandbox %q", truncate(name)).WithHint("list sandboxes to see what exists")
	}
	if len(v.actor.Sandboxes) > 0 && (err == nil || brig.KindOf(err) == brig.NotFound) {
		// The bearer must not learn whether another sandbox exists.
		requested := name
		if err == nil {
			requested = rec.Spec.Name
		}
		if denied := v.checkGrant(requested); denied != nil {
			return denied
		}
	}
	if err != nil {
		return err
	}
	v.rec, v.id = rec, rec.ID
	return nil
}

// loadAccountOf loads the account of the caller's tenant, and counts the call
// against the rate limits.
func (g *gate) loadAccountOf(ctx context.Context, v *call) (err error) {
	v.account, err = g.getAccount(ctx, v.actor.Tenant)
	if brig.KindOf(err) == brig.NotFound {
		return brig.Errorf(brig.PermissionDenied, "there is no tenant %q to act for", truncate(v.actor.Tenant)).
			WithHint("an operator creates tenants with brig tenant create")
	}
	if err != nil {
		return err
	}
	if t := v.account.Tenant(); !v.actor.Founded.IsZero() && !v.actor.Founded.Equal(t.Created) {
		return brig.Errorf(brig.Unauthenticated, "the credential is for a removed tenant %q", truncate(t.Name)).WithHint("use a key of the current tenant")
	}
	v.limitRange, v.tenantLimits = v.account.CallLimits()
	return v.countCall(ctx)
}

// countCall counts the call against the rates of its tenant and caller, and against the limit of
// changes by viewers. A checkOnly call is counted in advance, and SetCounted then exempts the call
// itself.
func (v *call) countCall(ctx context.Context) error {
	if !v.checkOnly && brig.SetCounted(ctx, false) || ctx.Value(uncountedKey{}) != nil {
		return nil
	}
	err := v.account.Allow(v.actor)
	if err == nil {
		err = v.e.viewerChanges.allow(v.op, v.actor, v.e.Now())
	}
	if err == nil && v.checkOnly {
		brig.SetCounted(ctx, true)
	}
	return err
}

// findSandbox returns a sandbox of a tenant by its name, its ID, or both in the form
// {tenant}:{name}:{id}.
func (g *gate) findSandbox(ctx context.Context, tenant, name string) (*brig.Record, error) {
	tenantName, sandboxName, id, ok := brig.ParseScopedID(name)
	if !ok {
		return g.Store.Get(ctx, tenant, name)
	}
	if tenantName == tenant {
		rec, err := g.Store.Get(ctx, tenant, string(id))
		if err == nil && rec.ID == id && rec.Spec.Name == sandboxName {
			return rec, nil
		}
		if err != nil && brig.KindOf(err) != brig.NotFound {
			return nil, err
		}
	}
	return nil, brig.Errorf(brig.NotFound, "no sandbox %q", truncate(name)).WithHint("list sandboxes to see what exists")
}

// checkGrant rejects a call if the caller is limited to some sandboxes and name is not one of
// these. It admits a create without a name, which calls checkGrant again with the name of the
// sandbox.
func (v *call) checkGrant(name string) error {
	if len(v.actor.Sandboxes) == 0 || slices.Contains(v.actor.Sandboxes, name) ||
		name == "" && (v.op == brig.OpCreate || v.op == brig.OpCreateGrant) {
		return nil
	}
	return brig.Errorf(brig.PermissionDenied, "the grant does not cover this").
		WithHint("it covers the sandboxes %s", truncate(strings.Join(v.actor.Sandboxes, ", ")))
}

// finish ends the call. It is deferred with the address of the operation's named error, and
// replaces it by the error that the caller receives. Causes appear only in the log.
func (v *call) finish(ctx context.Context, err *error) {
	defer v.e.calls.Done()
	defer func() { v.report(ctx, *err) }()
	if v.state == intentPending && errors.Is(*err, capacity.ErrShed) {
		*err = brig.AsError(*err)
		return
	}
	*err = v.flush(ctx, v.explainEnd(ctx, *err))
	if *err == nil {
		return
	}
	apiErr := brig.AsError(*err)
	if apiErr.Err != nil && apiErr.Kind != brig.Canceled {
		level := slog.LevelError
		if apiErr.Kind == brig.InvalidArgument || apiErr.Kind == brig.NotFound {
			level = slog.LevelDebug // the caller caused it
		}
		v.e.Log.Log(ctx, level, v.op.Name, "sandbox", v.id, "code", apiErr.Kind.Code(), "err", *err)
	}
	*err = apiErr
}

// do runs f as one call of an operation, on the sandbox with the given name if the operation has
// one. The gate admits or rejects the call, and its events are written when do returns. The
// returned error is intended for the caller.
func do[T any](ctx context.Context, e *gate, op brig.Op, name string, f func(*call) (T, error)) (T, error) {
	return doWithDetails(ctx, e, op, name, nil, f)
}

// doWithDetails is like do. note adds details of the call before the intent is
// recorded.
func doWithDetails[T any](ctx context.Context, e *gate, op brig.Op, name string, note func(*call), f func(*call) (T, error)) (out T, err error) {
	v, err := e.begin(ctx, op, name, note)
	if err != nil {
		return out, err
	}
	defer func() { v.finish(ctx, &err) }()
	return f(v)
}

// do is like the function do, for a call without a result.
func (g *gate) do(ctx context.Context, op brig.Op, name string, f func(*call) error) error {
	return g.doWithDetails(ctx, op, name, nil, f)
}

// doWithDetails is like the function doWithDetails, for a call without a
// result.
func (g *gate) doWithDetails(ctx context.Context, op brig.Op, name string, note func(*call), f func(*call) error) error {
	_, err := doWithDetails(ctx, g, op, name, note, func(v *call) (struct{}, error) { return struct{}{}, f(v) })
	return err
}

// withDetail returns a function that adds one detail of a call.
func withDetail(key, value string) func(*call) {
	return func(v *call) { v.addDetail(key, value) }
}

// Authorize authorizes a call of one of brig.KernelOps or brig.TemplateOps like any other call, and calls
// do with the caller's tenant. Such a call concerns an object that an API itself keeps for tenants; name is the
// object's name in the audit log. do must not wait for a caller.
func (g *gate) Authorize(ctx context.Context, op brig.Op, name string, do func(brig.Tenant) error) error {
	return g.doWithDetails(ctx, op, "", withDetail(brig.DetailName, name), func(v *call) error {
		return do(v.account.Tenant())
	})
}
